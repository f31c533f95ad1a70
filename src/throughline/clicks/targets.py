"""The files of the clicks, and the arguments of the commands that make them."""

from __future__ import annotations

from throughline.datasets.targets import FolderTargets
from throughline.study.clicks_section import SYNTHETIC, Clicks
from throughline.study.targets import absent


class ClicksTargets(FolderTargets):
    """The files of the section `clicks`."""

    def __init__(self, clicks: Clicks) -> None:
        super().__init__(clicks, "clicks", "clicks", ".hdf5")
        self.clicks = clicks

    def position(self, split: str, number: str, **wildcards: str) -> int:
        """Return the position of a shard among all shards."""
        self.check(split=split, number=number, **wildcards)
        return self.shards.names.index(f"{split}_{number}")

    def parts(self, clicks: str, **shard: str) -> list[str]:
        """Return the parts that the shards are gathered from."""
        self.check(clicks=clicks)
        return [f"{self.shards.folder}/parts/part_{part:04d}.hdf5" for part in range(len(self.clicks.logs))]

    def log(self, clicks: str, part: str) -> str:
        """Return the log that a part is parsed from."""
        parts = self.parts(clicks)
        if int(part) >= len(parts):
            raise absent(f"part {part}", parts)
        return self.clicks.logs[int(part)]

    def rows(self, clicks: str, day: str) -> int:
        """Return the rows of a synthetic log. All synthetic logs have the same share of the rows."""
        self.check(clicks=clicks)
        number, count = int(day), len(self.clicks.logs)
        if self.clicks.source != SYNTHETIC or number >= count:
            raise absent(f"log day_{day}.tsv", self.clicks.logs)
        return self.clicks.rows * (number + 1) // count - self.clicks.rows * number // count
