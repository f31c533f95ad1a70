"""The section `clicks`: how Criteo's logs, or synthetic logs, become shards, and which of its keys decide the files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from throughline.study.section import DataSection, FilePath, Name, PositiveInt, Shards

CLICKS_PROTOCOL = 1
"""A developer raises this number when the same logs give different shards. It changes the digest of all clicks."""
SYNTHETIC: Final = "synthetic"
SYNTHETIC_LOGS = 4
"""Number of log files that synthetic clicks are written into."""
SYNTHETIC_VALUES = 20_000
"""Number of different categories of synthetic clicks, over all fields."""


class Clicks(DataSection):
    contents: ClassVar[str] = "clicks"
    name: Name = Field("synthetic", description="name of the folder under data/")
    source: Literal["synthetic"] | Annotated[list[FilePath], Field(min_length=1)] = Field(
        SYNTHETIC,
        description="files in Criteo's format (a label, 13 whole numbers, 26 categories of 8 hex digits, between "
        "tabs), plain or gzip; `synthetic`: drawn at random",
    )
    rows: PositiveInt = Field(200_000, description="rows of synthetic clicks")
    shards: Shards = Field(default_factory=Shards, description="number of HDF5 files")

    @property
    def logs(self) -> list[str]:
        """Paths of the logs to parse: the user's files or the synthetic ones."""
        if self.source != SYNTHETIC:
            return list(self.source)
        return [f"data/{self.name}/clicks/logs/day_{number}.tsv" for number in range(SYNTHETIC_LOGS)]

    def decided_by(self, folder: str) -> dict[str, Any]:
        """Return what decides the shards. A log counts by its file name; its folder does not matter."""
        synthetic = {"rows": self.rows, "values": SYNTHETIC_VALUES} if self.source == SYNTHETIC else {}
        return {
            "protocol": CLICKS_PROTOCOL,
            "source": self.source if isinstance(self.source, str) else [Path(path).name for path in self.source],
            **synthetic,
            "shards": self.shards.model_dump(),
        }
