"""Open an archive that comes from a stranger: nothing in it may leave the folder, fill the disk or end the program.

`zipfile` removes a drive and `..` from names when it extracts. We do not rely on that: an archive that has such names
was not made by `snakemake pack`, and is refused.
"""

import json
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ValidationError

from throughline import temporary
from throughline.archive.contents import FORMATS, NAME, Contents
from throughline.files import UserError

Value = TypeVar("Value")
MOST_FILES = 200_000
MOST_BYTES = 4 << 30
"""The most that an archive may hold once it is unpacked."""
MOST_BYTES_OF_JSON = 256 << 20
MOST_GROWTH = 200
"""The most that a file of more than a MiB may be larger than its compressed form. Telemetry grows about twentyfold."""
GROWS_FREELY = 1 << 20
SAFE = re.compile(r"(?:results|data)(?:/(?!\.{1,2}(?:/|$))[\w.+,=@-]+)+")
MAKE = "ask for another copy; `snakemake pack` makes an archive"


@contextmanager
def opened(path: Path) -> Iterator[tuple[Path, Contents]]:
    """Unpack an archive into a temporary folder, and yield the folder and what archive.json says.

    UserError if the file is no archive, is damaged, or has a name, a link, a size or a version that we refuse. Whether
    the files are those that archive.json names is not asked here.
    """
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", next_step="check the path; `snakemake pack` makes one") from None
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"{path} is no archive", why=str(error), next_step=MAKE) from None
    with archive, temporary.folder() as folder:
        entries = archive.infolist()
        _allowed(path, entries)
        room = MOST_BYTES
        for entry in entries:
            room -= _unpacked(path, archive, entry, folder / entry.filename, room)
        yield folder, _contents(path, folder / NAME)


def _allowed(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Raise UserError if the table of contents has something that `snakemake pack` never writes."""
    if len(entries) > MOST_FILES:
        raise _refused(path, f"it holds {len(entries)} files; at most {MOST_FILES} are read")
    seen: set[str] = set()
    for entry in entries:
        name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
        if name != NAME and not SAFE.fullmatch(name):
            raise _refused(path, f"the name {name[:200]!r} does not belong below results/ or data/")
        if kind not in (0, stat.S_IFREG):
            raise _refused(path, f"{name} is a link or another thing that is not a plain file")
        if name.casefold() in seen:
            raise _refused(path, f"{name} is in it twice")
        if entry.flag_bits & 1:
            raise _refused(path, f"{name} is encrypted")
        seen.add(name.casefold())
    if NAME not in seen:
        raise _refused(path, f"it has no {NAME}")


def _unpacked(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, room: int) -> int:
    """Unpack one file and return its size. The sizes that the archive states are not trusted."""
    most = min(room, MOST_BYTES_OF_JSON if target.suffix == ".json" else room)
    most = min(most, max(GROWS_FREELY, MOST_GROWTH * entry.compress_size))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as source, target.open("xb") as copy:
            return _copied(source, copy, most)
    except _TooLarge:
        raise _refused(path, f"{entry.filename} unpacks to more than {most / 2**20:.0f} MiB") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise _refused(path, f"{entry.filename}: {error}") from None


class _TooLarge(Exception):
    pass


def _copied(source: IO[bytes], target: IO[bytes], most: int) -> int:
    size = 0
    while block := source.read(1 << 20):
        size += len(block)
        if size > most:
            raise _TooLarge
        target.write(block)
    return size


def _contents(path: Path, file: Path) -> Contents:
    try:
        value = as_json(file)
        _known(path, value)
        return Contents.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _refused(path, f"{NAME}, {where}: {first['msg']}") from None
    except ValueError as error:
        raise _refused(path, f"{NAME}: {error}") from None


def _known(path: Path, value: Any) -> None:
    formats = value.get("formats") if isinstance(value, dict) else None
    stated = formats if isinstance(formats, dict) else {}
    for name, known in FORMATS.items():
        if not isinstance(stated.get(name), int) or stated[name] <= known:
            continue
        raise UserError(
            f"{path} has version {stated[name]} of the format {name}, and this program reads up to {known}",
            why=f"version {str(value.get('version'))[:40]} of Throughline has made it",
            next_step="check it with that version or a later one",
        )


def as_json(file: Path) -> Any:
    """Return the value of a JSON file from a stranger. ValueError if it is no JSON, or is nested too deeply."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def validated(file: Path, read: Callable[[Path], Value]) -> Value:
    """Return what `read` returns for a JSON file from a stranger. UserError if it is no JSON, or nested too deeply."""
    try:
        as_json(file)
    except ValueError as error:
        raise UserError(f"{file.name} of an archive cannot be read", why=str(error), next_step=MAKE) from None
    return read(file)


def _refused(path: Path, why: str) -> UserError:
    return UserError(f"{path} is not accepted", why=why, next_step=MAKE)
