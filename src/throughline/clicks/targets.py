"""The files of the clicks, and the arguments of the commands that make them."""

from __future__ import annotations

from throughline.datasets.splits import shard_names
from throughline.datasets.targets import Shards, require
from throughline.study.clicks_section import SYNTHETIC, Clicks
from throughline.study.targets import absent


class ClicksTargets:
    """The files of the section `clicks`. A look-up gets the wildcards of a rule; UserError if there is no such file."""

    def __init__(self, clicks: Clicks) -> None:
        self.clicks = clicks
        self.shards = Shards(f"data/{clicks.name}/clicks", shard_names(clicks.shards.model_dump()))

    def files(self) -> list[str]:
        """Return everything that `snakemake clicks` makes."""
        return self.shards.files()

    def verified(self, clicks: str) -> list[str]:
        """Return the verification files of all shards."""
        self._check(clicks)
        return self.shards.verified()

    def shard(self, clicks: str, split: str, number: str) -> int:
        """Return the position of a shard among all shards."""
        self._check(clicks)
        return self.shards.position(split, number)

    def parts(self, clicks: str, **shard: str) -> list[str]:
        """Return the parts that the shards are gathered from."""
        self._check(clicks)
        return [f"{self.shards.folder}/parts/part_{part:04d}.hdf5" for part in range(len(self.clicks.logs))]

    def log(self, clicks: str, part: str) -> str:
        """Return the log that a part is parsed from."""
        parts = self.parts(clicks)
        if int(part) >= len(parts):
            raise absent(f"part {part}", parts)
        return self.clicks.logs[int(part)]

    def made_up(self, clicks: str, log: str) -> list[str]:
        """Return what decides a made-up log, as arguments. All made-up logs have the same share of the rows."""
        self._check(clicks)
        number, count = int(log), len(self.clicks.logs)
        if self.clicks.source != SYNTHETIC or number >= count:
            raise absent(f"log day_{log}.tsv", self.clicks.logs)
        rows = self.clicks.rows * (number + 1) // count - self.clicks.rows * number // count
        return ["--part", log, "--rows", str(rows), "--values", str(self.clicks.values)]

    def _check(self, clicks: str) -> None:
        require("clicks", clicks, [self.clicks.name])
