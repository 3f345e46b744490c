"""``python -m userdp`` is the command line."""

from userdp.cli import main

if __name__ == "__main__":
    main()
