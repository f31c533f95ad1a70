"""The files of a folder of shards, and the error for a file that the configuration does not ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from throughline import spelling
from throughline.datasets.shards import shard_names
from throughline.files import UserError
from throughline.study.data_sections import SYNTHETIC, Clicks, Pictures
from throughline.study.targets import absent


@dataclass(frozen=True)
class Shards:
    """The shards of a folder, such as `data/sample/images`, by their names. A shard has a file for each ending."""

    folder: str
    names: Sequence[str]
    endings: Sequence[str] = (".hdf5",)

    def files(self) -> list[str]:
        """Return the manifest and the shards. The shards are named too, so that a missing shard is made again."""
        shards = [f"{self.folder}/{name}{ending}" for name in self.names for ending in self.endings]
        return [f"{self.folder}/manifest.json", *shards]

    def verified(self) -> list[str]:
        """Return the verification files of all shards."""
        return [f"{self.folder}/verified/{name}.json" for name in self.names]


class FolderTargets:
    """The files of a section whose data lie in one folder, `data/<name>/<room>`. A look-up gets a rule's wildcards."""

    def __init__(self, section: Pictures | Clicks, room: str, *endings: str) -> None:
        self.section, self.room = section, room
        self.shards = Shards(f"data/{section.name}/{room}", shard_names(section.shards.model_dump()), endings)

    def files(self) -> list[str]:
        """Return everything that is made of the section: nothing if its batches are synthetic."""
        return [] if self.section.is_synthetic else self.shards.files()

    def check(self, name: str, **wildcards: str) -> None:
        """Raise UserError if there are no such data, or if they have no such shard (`split` and `number`)."""
        next_step = f"name a folder as {self.room}.source" if self.section.is_synthetic else None
        require(self.room, name, [] if self.section.is_synthetic else [self.section.name], next_step)
        if "split" in wildcards:
            require("shard", f"{wildcards['split']}_{wildcards['number']}", self.shards.names)

    def verified(self, **wildcards: str) -> list[str]:
        """Return the verification files of all shards."""
        self.check(**wildcards)
        return self.shards.verified()


class ClicksTargets(FolderTargets):
    """The files of the section `clicks`: also the logs, and the parts that the shards are gathered from."""

    section: Clicks

    def __init__(self, clicks: Clicks) -> None:
        super().__init__(clicks, "clicks", ".hdf5")

    def parts(self, **shard: str) -> list[str]:
        """Return the parts that a shard is gathered from."""
        self.check(**shard)
        return [f"{self.shards.folder}/parts/part_{number:04d}.hdf5" for number in range(len(self.section.logs))]

    def position(self, split: str, number: str, **wildcards: str) -> int:
        """Return the position of a shard among all shards."""
        self.check(split=split, number=number, **wildcards)
        return self.shards.names.index(f"{split}_{number}")

    def log(self, name: str, part: str) -> str:
        """Return the log that a part is parsed from."""
        self.check(name)
        require("part", part, [f"{number:04d}" for number in range(len(self.section.logs))])
        log = self.section.logs[int(part)]
        return log if self.section.source == SYNTHETIC else there(log, "clicks.source")

    def rows(self, name: str, day: str) -> int:
        """Return the rows of a synthetic log. All synthetic logs have the same share of the rows."""
        self.check(name)
        count = len(self.section.logs) if self.section.source == SYNTHETIC else 0
        require("synthetic log", day, [str(number) for number in range(count)])
        return self.section.rows * (int(day) + 1) // count - self.section.rows * int(day) // count


def there(file: str, key: str) -> str:
    """Return a file that a key of the configuration names. UserError if it is not there."""
    if not Path(file).exists():
        raise UserError(
            f"{file} is not there, and {key} names it",
            next_step=f"{spelling.beside(Path(file))}correct {key}, or put the file there",
        )
    return file


def require(what: str, name: str, names: Sequence[str], next_step: str | None = None) -> None:
    """Raise UserError, with the names that there are, if `name` is not one of them. `what`: such as `part`.

    Names are numbered, so the error lists only the first and the last of more than eight.
    """
    if name not in names:
        raise absent(f"{what} {name}", names if len(names) <= 8 else [names[0], "...", names[-1]], next_step=next_step)
