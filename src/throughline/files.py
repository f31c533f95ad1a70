"""Files that are whole or absent, their digests, text without secrets, and errors a user can act on.

Standard library only: the measured workers import this from environments that hold nothing else of ours.
"""

from __future__ import annotations

import errno
import getpass
import hashlib
import ipaddress
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn


class UserError(Exception):
    """Something the user can mend: what went wrong (and where), why, and what to do next."""

    def __init__(self, what: str, *, why: str | None = None, next_step: str | None = None) -> None:
        self.what, self.why, self.next_step = what, why, next_step
        parts = [what, f"  why:  {why}" if why else "", f"  next: {next_step}" if next_step else ""]
        super().__init__("\n".join(part for part in parts if part))


def command_line(main: Callable[[], int | None]) -> NoReturn:
    """Run `main`, print a UserError without its traceback, and leave with the exit status.

    A full disk and a folder that may not be written to are the user's to mend as well.
    """
    try:
        sys.exit(main() or 0)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        mendable = _disk_error(error)
        if mendable is None:
            raise
        print(f"error: {mendable}", file=sys.stderr)
    sys.exit(1)


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}


def _disk_error(error: OSError) -> UserError | None:
    """What a user can do about an error of the file system, where there is something."""
    told = re.search(r"filename = '([^']*)'", str(error))  # how HDF5 tells it
    path = Path(os.fsdecode(error.filename) if error.filename else told[1] if told else "a file")
    if ".partial" in path.name:
        path = path.parent
    if error.errno in _FULL:
        return UserError(
            f"{path} could not be written: {os.strerror(error.errno)}",
            why="the disk is full, or a quota or limit of file sizes is reached; nothing unfinished was left",
            next_step="make room, and run snakemake again: it makes only what is missing",
        )
    if error.errno in _FORBIDDEN:
        return UserError(
            f"{path} could not be opened: {os.strerror(error.errno)}",
            why="this user may not write (or read) there, or the file system is mounted read-only",
            next_step="correct the rights or the mount, and run snakemake again: it makes only what is missing",
        )
    return None


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is synced and renamed to `path`, else removed.

    The temporary name starts with a dot and ends like the final one, for writers that look at the suffix.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.stem}.", suffix=f".partial{final.suffix}")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        _sync(temporary)
        os.replace(temporary, final)
        _sync(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all; NaN and infinity are a ValueError."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value in a JSON file; UserError where it is absent or not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", next_step=f"make it: snakemake {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not valid JSON", why=str(error), next_step="remove the file and run snakemake again"
        ) from None


def sha256(path: str | os.PathLike[str]) -> str:
    """The file's SHA-256 as 64 hexadecimal digits, read in constant memory."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)|(?<![\w.:])[0-9a-fA-F]*(?::[0-9a-fA-F]*){2,7}(?![\w:]*\w)"
)
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])")
_TOKEN = re.compile(r"(?i)\b([\w-]*(?:token|secret|password|api[_-]?key)[\w-]*\s*[=:]\s*)\S+")


def scrub(text: str) -> str:
    """`text` with this machine's host name, user, home folder, network addresses and tokens masked."""
    home = str(Path.home())
    if home != "/":
        text = text.replace(home + os.sep, "~" + os.sep)
    host = socket.gethostname()
    for name, alias in {host: "HOST", host.split(".")[0]: "HOST", _user(): "USER"}.items():
        if len(name) > 2 and name not in {"root", "localhost"}:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", alias, text)
    text = _ADDRESS.sub(_masked_address, text)
    text = _MAC.sub("ADDRESS", text)
    return _TOKEN.sub(r"\1MASKED", text)


def _masked_address(match: re.Match[str]) -> str:
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return match[0] if address.is_loopback or address.is_unspecified else "ADDRESS"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
