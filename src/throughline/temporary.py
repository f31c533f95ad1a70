"""Temporary folders that are removed even after a crash.

A process locks its folder as long as it lives. Before a process makes a folder, it removes the folders of this machine
and this user that nobody locks, such as those that a power failure left behind. Standard library only.
"""

import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from throughline.files import digest

PREFIX = f"throughline-run-{digest(platform.node())}-"
"""The prefix depends on the machine, because machines that share a temporary folder may not see each other's locks."""


@contextlib.contextmanager
def folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder in `parent` or in the system's temporary folder, yield it, and remove it at the end."""
    parent = Path(parent or tempfile.gettempdir())
    _remove_stale(parent)
    path, lock = _locked(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(parent: Path) -> tuple[Path, int]:
    """Return a new folder and the file descriptor of its lock, which the system releases when this process ends.

    Where the file system has no locks, no process removes the folder of another one either.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = _open(path)
        except FileNotFoundError:
            continue  # another process removed it before this one opened it
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)  # another process removed it before this one had the lock


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it is a link, no folder, locked or already removed
            lock = _open(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
