"""An unfinished download: `<name>.part`, and `<name>.part.json` with its address. Both files survive a kill."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from throughline import files
from throughline.files import UserError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def arrived(part: Path) -> int:
    """Return how many bytes of an unfinished download have arrived."""
    return part.stat().st_size if part.exists() else 0


def note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def read_note(part: Path) -> dict[str, Any]:
    with suppress(UserError):
        value = files.read_json(note(part))
        return value if isinstance(value, dict) else {}
    return {}


@contextmanager
def writing(part: Path, begin: int) -> Iterator[IO[bytes]]:
    """Open `part` for writing from byte `begin` on. A full disk is a UserError; the bytes written so far stay."""
    try:
        with part.open("r+b" if begin else "wb") as stream:
            stream.seek(begin)
            stream.truncate()
            yield stream
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise UserError(
            f"{part} could not be written on",
            why=f"{os.strerror(error.errno)}, after {arrived(part)} bytes",
            next_step="free some space and run snakemake again: it goes on from there",
        ) from None


@contextmanager
def alone(part: Path) -> Iterator[None]:
    """Lock the download of `part`; UserError if another process holds the lock."""
    lock = part.with_name(part.name + ".lock")
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{part.name.removesuffix('.part')} is being downloaded by another process",
                why=f"it holds {lock}",
                next_step="wait until it is done, and run snakemake again",
            ) from None
        except OSError:
            pass  # a file system without locks: only Snakemake's own lock protects the download
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def finish(part: Path, path: Path) -> None:
    """Rename a download that is whole and right to its final name."""
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(part, path)
    note(part).unlink(missing_ok=True)
