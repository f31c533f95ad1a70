"""archive.json, the first file of an archive, and opening an archive that comes from a stranger.

archive.json says what the archive holds, and what its summaries were made with. Nothing in an archive may leave the
folder into which it is unpacked, fill the disk or end the program. `zipfile` removes a drive and `..` from names when
it extracts. We do not rely on that: an archive that has such names was not made by `snakemake pack`, and is refused.
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
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from throughline import __version__, sources, temporary
from throughline.files import UserError, read_json
from throughline.records.entry import SCHEMA, Count, Entry, Whole

NAME = "archive.json"
Format = Literal["archive", "results"]
FORMATS: Final[dict[Format, int]] = {"archive": 2, "results": SCHEMA}
"""The version of every format in an archive that we write, and the only one that we read.

All files under results/ share one, which is their schema.
"""
RULES = (
    "throughline.report.analysis.summary", "throughline.report.topics", "throughline.comparables.exports",
    "throughline.acceptance.verdict", "throughline.report.render.page", "throughline.observe.environment",
)  # fmt: skip
"""The modules that make summaries, tables and verdicts. An archive names the digest of everything that they import."""

# Benchmarks and summaries are paths below the archive's folder. Their names lead nowhere else.
Benchmark = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
SummaryName = Annotated[str, Field(pattern=r"^results/[A-Za-z0-9_][A-Za-z0-9_.-]*/bz[0-9]+_[a-z0-9]+\.json$")]


class Held(Entry):
    """One file of an archive, unpacked."""

    bytes: Whole
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Made(Entry):
    """What the summaries and tables of a benchmark were made with, other than the records.

    repeats: asked for in each cell; terms: goals, prices, margin and task (summary.Terms) as JSON values; compared:
    summaries of other benchmarks that its tables use; equivalence: True if the benchmark has a numerical equivalence
    check; predict: what its predictions are asked for (predictions.Asked), None without any.
    """

    repeats: Count
    terms: dict[str, Any]
    remarks: str | None
    summaries: list[SummaryName]
    compared: list[SummaryName]
    equivalence: bool
    predict: dict[str, Any] | None = Field(None, exclude_if=lambda value: value is None)


class Contents(Entry):
    """archive.json. `version` and `rules` say which program made the summaries and tables.

    drawn_with: the version of the library that drew the plots.
    """

    formats: dict[Format, Count]
    version: str
    rules: str
    drawn_with: str
    configuration: dict[str, Any] | None
    benchmarks: dict[Benchmark, Made]
    files: dict[str, Held]

    @field_validator("files")
    @classmethod
    def _holds_every_summary(cls, value: dict[str, Held], info: ValidationInfo) -> dict[str, Held]:
        """A summary is a file of the archive, and lies below the folder of its benchmark."""
        for benchmark, made in info.data.get("benchmarks", {}).items():
            for name in (*made.summaries, *made.compared):
                if name not in value:
                    raise ValueError(f"{name} is not among them, and {benchmark} asks for it")
            for name in made.summaries:
                if not name.startswith(f"results/{benchmark}/"):
                    raise ValueError(f"{name} is no summary of {benchmark}")
        return value


def rules() -> str:
    """Return a digest of our own code that makes summaries and tables from records."""
    return sources.digest(sources.closure(*RULES))


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
