"""Open an archive that comes from a stranger: nothing in it may leave the folder, fill the disk or end the program.

`zipfile` removes a drive and `..` from names when it extracts. We do not rely on that: an archive that has such names
was not made by `snakemake pack`, and is refused.

`opened` unpacks everything, for a check that derives every figure again. `looked_into` reads files one by one, and so
needs neither a disk nor much time.
"""

import hashlib
import json
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from throughline import __version__, temporary
from throughline.archive.contents import FORMATS, NAME, Contents
from throughline.files import UserError

Value = TypeVar("Value")
MOST_FILES = 200_000
MOST_BYTES = 4 << 30
"""The most that an archive may hold once it is unpacked."""
MOST_BYTES_OF_JSON = 64 << 20
"""The most that a JSON file may hold: the times of two million steps, or an acceptance of all pairs of 200 nodes."""
MOST_VALUES_OF_JSON = 4_000_000
"""The most values in it. Objects and lists need up to thirty times the memory of their text."""
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
    with _zip(path) as archive, temporary.folder() as folder:
        entries = archive.infolist()
        room = MOST_BYTES
        for entry in entries:
            room -= _copied(path, entry.filename, folder, _blocks(path, archive, entry, room))
        yield folder, _contents(path, (folder / NAME).read_bytes())


@contextmanager
def looked_into(path: Path) -> Iterator["Archive"]:
    """Open an archive whose files are read one by one. UserError as from `opened`, or if a file is not the named one.

    Every file is read once, because a file that was changed makes all others questionable.
    """
    with _zip(path) as archive, temporary.folder() as folder:
        entries = {entry.filename: entry for entry in archive.infolist()}
        told = b"".join(_blocks(path, archive, entries[NAME], MOST_BYTES))
        found = Archive(path, _contents(path, told), folder, archive, entries)
        found.require_whole()
        yield found


@dataclass(frozen=True)
class Archive:
    """An archive that stays packed. contents: what archive.json says; folder: where `unpacked` puts files."""

    path: Path
    contents: Contents
    folder: Path
    archive: zipfile.ZipFile
    entries: Mapping[str, zipfile.ZipInfo]

    def require_whole(self) -> None:
        """Raise UserError if a file is missing, is not named by archive.json, or was changed."""
        for name in sorted((self.entries.keys() - {NAME}) ^ self.contents.files.keys()):
            lacks = f"{NAME} names this file, and the archive lacks it"
            raise self._changed(name, lacks if name in self.contents.files else f"{NAME} does not name this file")
        room = MOST_BYTES
        for name, held in self.contents.files.items():
            digest = hashlib.sha256()
            for block in _blocks(self.path, self.archive, self.entries[name], room):
                digest.update(block)
                room -= len(block)
            if digest.hexdigest() != held.sha256:
                raise self._changed(name, f"its SHA-256 is not the one in {NAME}: the file was changed")

    def _changed(self, name: str, why: str) -> UserError:
        return UserError(
            f"{self.path} is damaged or was changed",
            why=f"{name}: {why}",
            next_step=f"`throughline check {self.path}` lists everything; ask for another copy",
        )

    def __contains__(self, name: str) -> bool:
        return name in self.contents.files

    @cached_property
    def summaries(self) -> list[str]:
        """The names of all summaries that archive.json asks for."""
        return [name for made in self.contents.benchmarks.values() for name in made.summaries]

    def json(self, name: str) -> Any:
        """Return the value of a JSON file. KeyError without the file; ValueError if it is no JSON that we read."""
        return _value(b"".join(self._blocks(name)))

    def unpacked(self, name: str) -> Path:
        """Return the path of a copy of one file, for a reader that takes paths. UserError without the file."""
        if name not in self:
            raise self._changed(name, f"{NAME} asks for this file, and the archive lacks it")
        if not (self.folder / name).exists():
            _copied(self.path, name, self.folder, self._blocks(name))
        return self.folder / name

    def _blocks(self, name: str) -> Iterator[bytes]:
        return _blocks(self.path, self.archive, self.entries[name], MOST_BYTES)


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the file, and refuse it if its table of contents has something that we never write."""
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", next_step="check the path; `snakemake pack` makes one") from None
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"{path} is no archive", why=str(error), next_step=MAKE) from None
    with archive:
        _allowed(path, archive.infolist())
        yield archive


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


def _blocks(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, room: int) -> Iterator[bytes]:
    """Yield the content of one file. The sizes that the archive states are not trusted."""
    most = min(room, MOST_BYTES_OF_JSON if entry.filename.endswith(".json") else room)
    most = left = min(most, max(GROWS_FREELY, MOST_GROWTH * entry.compress_size))
    try:
        with archive.open(entry) as source:
            while block := source.read(1 << 20):
                left -= len(block)
                if left < 0:
                    raise _refused(path, f"{entry.filename} unpacks to more than {most / 2**20:.0f} MiB")
                yield block
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise _refused(path, f"{entry.filename}: {error}") from None


def _copied(path: Path, name: str, folder: Path, blocks: Iterable[bytes]) -> int:
    """Write one file, and return its size."""
    target = folder / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            return sum(map(copy.write, blocks))
    except OSError as error:  # a name that is too long, or that is a folder as well
        raise _refused(path, f"{name}: {error.strerror}") from None


def _contents(path: Path, content: bytes) -> Contents:
    try:
        value = _value(content)
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
        version = stated.get(name)
        if not isinstance(version, int) or version == known:
            continue
        later = " or a later one" if version > known else "; to compare with it, measure and pack again with this one"
        raise UserError(
            f"{path} has version {version} of the format {name}, and this version of Throughline ({__version__}) reads "
            f"{known}",
            why=f"version {str(value.get('version'))[:40]} of Throughline has made it",
            next_step=f"check it with that version{later}",
        )


def as_json(file: Path) -> Any:
    """Return the value of a JSON file from a stranger. ValueError if it is no JSON, too large or nested too deeply."""
    return _value(file.read_bytes())


def _value(content: bytes) -> Any:
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_VALUES_OF_JSON:
        raise ValueError(f"it has more than {MOST_VALUES_OF_JSON:,} values")
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def validated(file: Path, read: Callable[[Path], Value]) -> Value:
    """Return what `read` returns for a JSON file from a stranger. UserError if it cannot be read."""
    try:
        as_json(file)
    except ValueError as error:
        raise UserError(f"{file.name} of an archive cannot be read", why=str(error), next_step=MAKE) from None
    return read(file)


def _refused(path: Path, why: str) -> UserError:
    return UserError(f"{path} is not accepted", why=why, next_step=MAKE)
