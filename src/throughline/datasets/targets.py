"""The files of a folder of shards, and the error for a file that the configuration does not ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.study.targets import absent

LISTED_AT_MOST = 8
"""Largest number of lengths, parts or shards that an error lists. Of more, it names only the first and the last."""


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

    def position(self, split: str, number: str) -> int:
        """Return the position of a shard among all shards; UserError if there is no such shard."""
        require("shard", f"{split}_{number}", self.names)
        return self.names.index(f"{split}_{number}")


def require(what: str, name: str, names: Sequence[str], next_step: str | None = None) -> None:
    """Raise UserError, with the names that there are, if `name` is not one of them. `what`: such as `part`."""
    if name not in names:
        listed = names if len(names) <= LISTED_AT_MOST else [names[0], "...", names[-1]]
        raise absent(f"{what} {name}", listed, next_step=next_step)
