"""Temporary folders that outlive no crash for long: each is locked while its owner lives, and the next owner removes
those that nobody locks.

A node that loses its power leaves what its processes had in its temporary folder. Only folders of this machine, this
user and this file's prefix are ever removed. Standard library only: agents make their folders with it.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = f"throughline-run-{hashlib.sha256(platform.node().encode()).hexdigest()[:12]}-"
"""Machines that share a temporary folder may not see one another's locks: each machine has a prefix of its own."""


@contextlib.contextmanager
def folder(place: Path | None = None) -> Iterator[Path]:
    """A new folder in `place`, or in the system's temporary folder; removed at the end, as are those of dead owners."""
    parent = Path(place or tempfile.gettempdir())
    _remove_stale(parent)
    path, lock = _locked(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(parent: Path) -> tuple[Path, int]:
    """A new folder and the lock on it, which ends with this process. Where the file system has no locks, the folder is
    not locked, and nobody removes it either."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = _open(path)
        except FileNotFoundError:
            continue  # another owner found it before it was locked
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)  # the same, while this process waited for the lock


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # a link, no folder, locked, or gone by now
            lock = _open(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
