"""The sections `images`, `faces` and `clicks`: how pictures and Criteo's logs become shards, and what decides them."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from throughline.study.section import DataSection, FilePath, Name, PositiveInt, Shards, Text, lead

IMAGES_PROTOCOL = 1
"""A developer raises this number when the same pictures give different shards. It changes the digest of all images."""
CLICKS_PROTOCOL = 1
"""A developer raises this number when the same logs give different shards. It changes the digest of all clicks."""
SYNTHETIC: Final = "synthetic"
SYNTHETIC_LOGS = 4
"""Number of log files that synthetic clicks are written into."""
SYNTHETIC_VALUES = 20_000
"""Number of different categories of synthetic clicks, over all fields."""
SAMPLE = "sample"

Source = Annotated[Text, AfterValidator(lambda source, info: source if source == SAMPLE else lead(source, info))]
"""The sample or the path of a folder."""


class Pictures(DataSection):
    """The keys that the sections `images` and `faces` share."""

    contents: ClassVar[str] = "pictures"
    name: Name
    source: Text | None
    damaged: Literal["refuse", "skip"] = Field(
        "refuse",
        description="a picture that cannot be decoded is an error, or left out and counted",
    )
    shards: Shards = Field(
        default_factory=Shards,
        description="number of tar files. Without `val`, the test shards get a share of the pictures",
    )

    def decided_by(self, folder: str) -> dict[str, Any]:
        """Return what decides the shards. The source counts by its name; the folder that holds it does not matter."""
        return {
            "protocol": IMAGES_PROTOCOL,
            "source": None if self.source is None else Path(self.source).name,
            "shards": self.shards.model_dump(),
            **({} if self.damaged == "refuse" else {"damaged": self.damaged}),
        }


class Images(Pictures):
    name: Name = Field("sample", description="name of the folder under data/")
    source: Source = Field(
        SAMPLE,
        description="`sample` (crops of a photograph) or a folder: `train/` and perhaps `val/`, each with a folder "
        "of pictures for each class, as ImageNet has; these folders alone; or tar files, one for each class, or "
        "webdataset's",
    )


class Faces(Pictures):
    name: Name = Field("faces", description="name of the folder under data/")
    source: FilePath | None = Field(
        None,
        description="a folder of aligned faces of 112 x 112 pixels: `train/` with a folder for each person, or "
        "MXNet's RecordIO (`train.rec`, `train.idx`). null: synthetic faces",
    )

    @property
    def is_synthetic(self) -> bool:
        return self.source is None


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
