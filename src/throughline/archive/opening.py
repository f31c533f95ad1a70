"""Open an archive that comes from a stranger: nothing in it may leave the folder, fill the disk or end the program.

`zipfile` removes a drive and `..` from names when it extracts. We do not rely on that: an archive that has such names
was not made by `snakemake pack`, and is refused.
"""

import hashlib
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from throughline import __version__, temporary
from throughline.archive.contents import FORMATS, NAME, Contents
from throughline.files import UserError, read_json

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


@dataclass(frozen=True)
class Archive:
    """An archive, unpacked into a temporary folder. digests: the SHA-256 of each file in it; contents: archive.json."""

    path: Path
    folder: Path
    digests: Mapping[str, str]
    contents: Contents

    @property
    def summaries(self) -> list[str]:
        """The names of all summaries that archive.json asks for."""
        return [name for made in self.contents.benchmarks.values() for name in made.summaries]

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield each file that is not the one that archive.json names, and why."""
        named = self.contents.files
        for name in sorted(self.digests.keys() | named.keys()):
            if name not in self.digests:
                yield name, f"{NAME} names this file, and the archive lacks it"
            elif name not in named:
                yield name, f"{NAME} does not name this file"
            elif self.digests[name] != named[name].sha256:
                yield name, f"its SHA-256 is not the one in {NAME}: the file was changed"


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Unpack an archive into a temporary folder.

    UserError if the file is no archive, is damaged, or has a name, a link, a size or a version that we refuse. Whether
    its files are those that archive.json names is not asked here.
    """
    try:
        packed = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", next_step="check the path; `snakemake pack` makes one") from None
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"{path} is no archive", why=str(error), next_step=f"{MAKE}; a table is a file .csv") from None
    with packed, temporary.folder() as folder:
        try:
            _refuse_entries(packed.infolist())
            room, digests = MOST_BYTES, dict[str, str]()
            for entry in packed.infolist():
                target = folder / entry.filename
                digests[entry.filename] = _unpack(packed, entry, target, room)
                room -= target.stat().st_size
            del digests[NAME]
            contents = _contents(path, folder / NAME)
        except ValueError as error:
            raise UserError(f"{path} is not accepted", why=str(error), next_step=MAKE) from None
        yield Archive(path, folder, digests, contents)


@contextmanager
def looked_into(path: Path) -> Iterator[Archive]:
    """Open an archive as `opened` does. UserError as well if a file is not the one that archive.json names.

    Every file is compared, because a file that was changed makes all others questionable.
    """
    with opened(path) as archive:
        for name, why in archive.changes():
            raise UserError(
                f"{path} is damaged or was changed",
                why=f"{name}: {why}",
                next_step=f"`throughline check {path}` lists everything; ask for another copy",
            )
        yield archive


def _refuse_entries(entries: list[zipfile.ZipInfo]) -> None:
    """Raise ValueError if the table of contents has something that `snakemake pack` never writes."""
    if len(entries) > MOST_FILES:
        raise ValueError(f"it holds {len(entries)} files; at most {MOST_FILES} are read")
    seen: set[str] = set()
    for entry in entries:
        name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
        if name != NAME and not SAFE.fullmatch(name):
            raise ValueError(f"the name {name[:200]!r} does not belong below results/ or data/")
        if kind not in (0, stat.S_IFREG):
            raise ValueError(f"{name} is a link or another thing that is not a plain file")
        if name.casefold() in seen:
            raise ValueError(f"{name} is in it twice")
        if entry.flag_bits & 1:
            raise ValueError(f"{name} is encrypted")
        seen.add(name.casefold())
    if NAME not in seen:
        raise ValueError(f"it has no {NAME}")


def _unpack(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, room: int) -> str:
    """Write one file, and return its SHA-256. ValueError if it is too large. The sizes that the archive states are not
    trusted."""
    name, digest, size, values = entry.filename, hashlib.sha256(), 0, 0
    is_json = name.endswith(".json")
    most = min(room, MOST_BYTES_OF_JSON if is_json else room, max(GROWS_FREELY, MOST_GROWTH * entry.compress_size))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with packed.open(entry) as source, target.open("xb") as copy:
            while block := source.read(1 << 20):
                size += len(block)
                values += sum(map(block.count, (b",", b"[", b"{"))) if is_json else 0
                if size > most:
                    raise ValueError(f"{name} unpacks to more than {most / 2**20:.0f} MiB")
                if values > MOST_VALUES_OF_JSON:
                    raise ValueError(f"{name} has more than {MOST_VALUES_OF_JSON:,} values")
                digest.update(block)
                copy.write(block)
    except OSError as error:  # a name that is too long, or that is a folder as well
        raise ValueError(f"{name}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"{name}: {error}") from None
    return digest.hexdigest()


def _contents(path: Path, file: Path) -> Contents:
    """Return what archive.json says. UserError if its formats are not those that we read; ValueError if it is none."""
    try:
        value = read_json(file)
    except UserError as error:
        raise ValueError(f"{NAME}: {error.why}") from None
    formats = value.get("formats") if isinstance(value, dict) else None
    for name, ours in FORMATS.items():
        version = formats.get(name) if isinstance(formats, dict) else None
        if isinstance(version, int) and version != ours:
            later = (
                " or a later one" if version > ours else "; to compare with it, measure and pack again with this one"
            )
            raise UserError(
                f"{path} has version {version} of the format {name}, and this version of Throughline ({__version__}) "
                f"reads {ours}",
                why=f"version {str(value.get('version'))[:40]} of Throughline has made it",
                next_step=f"check it with that version{later}",
            )
    try:
        return Contents.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{NAME}, {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
