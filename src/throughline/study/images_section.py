"""The sections `images` and `faces`: how a folder of pictures becomes shards of JPEG files, and what decides them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from throughline.study.section import DataSection, FilePath, Name, Shards, Text, lead

IMAGES_PROTOCOL = 1
"""A developer raises this number when the same pictures give different shards. It changes the digest of all images."""
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
