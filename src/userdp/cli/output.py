"""Files that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from userdp.cli import interrupts
from userdp.errors import InvalidInputError


@contextmanager
def new_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill beside ``target``; at the end it takes that name.

    It is made first, so that a disk that cannot be written is found before any budget is spent. Under
    ``overwrite`` an existing folder keeps whatever else it holds: each file replaces its namesake by rename.

    Raises
    ------
    InvalidInputError
        Where the folder exists, or cannot be made; nothing is written then.
    """
    exists = os.path.lexists(target)
    if exists and not target.is_dir():
        raise InvalidInputError(f"{target} is a file; give the name of a folder")
    if exists and not overwrite:
        raise InvalidInputError(f"{target} exists already; choose another folder, or pass --overwrite")
    with _beside(target) as draft:
        yield draft
        interrupts.check()
        if exists:
            for file in sorted(draft.iterdir()):
                os.replace(file, target / file.name)
        else:
            _open_to_others(draft)
            os.rename(draft, target)


@contextmanager
def new_file(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a hidden folder for drafts beside ``target``; at the end its file of that name moves there."""
    if target.is_dir():
        raise InvalidInputError(f"{target} is a folder; give the name of a file")
    if os.path.lexists(target) and not overwrite:
        raise InvalidInputError(f"{target} exists already; choose another name, or pass --overwrite")
    with _beside(target) as draft:
        yield draft
        interrupts.check()
        os.replace(draft / target.name, target)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    parent = target.absolute().parent
    if not parent.is_dir():
        raise InvalidInputError(f"the folder {parent} does not exist; create it first")
    try:
        draft = Path(tempfile.mkdtemp(dir=parent, prefix=f".{target.name}-"))
    except OSError as error:
        raise InvalidInputError(f"cannot write in {parent}: {error.strerror}") from None
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _open_to_others(folder: Path) -> None:
    """Give a temporary folder the rights of any new one; temporary ones are for their owner alone."""
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
