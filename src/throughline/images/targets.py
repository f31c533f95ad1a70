"""The files of a section of pictures."""

from __future__ import annotations

from throughline.datasets.splits import shard_names
from throughline.datasets.targets import Shards, require
from throughline.study.images_section import Pictures


class PicturesTargets:
    """The files of the pictures of a section. `room` is the section's name and the name of the pictures' folder."""

    def __init__(self, pictures: Pictures, room: str) -> None:
        self.pictures, self.room = pictures, room
        names = shard_names(pictures.shards.model_dump())
        self.shards = Shards(f"data/{pictures.name}/{room}", names, (".tar", ".idx"))

    def files(self) -> list[str]:
        """Return everything that `snakemake images` makes."""
        return [] if self.pictures.is_made_up else self.shards.files()

    def check(self, images: str, **shard: str) -> None:
        """Raise UserError if there are no such pictures, or if they have no such shard (`split` and `number`)."""
        if self.pictures.is_made_up:
            require(self.room, images, [], f"name a folder as {self.room}.source")
        require(self.room, images, [self.pictures.name])
        if shard:
            self.shards.position(**shard)

    def verified(self, images: str) -> list[str]:
        """Return the verification files of all shards."""
        self.check(images)
        return self.shards.verified()
