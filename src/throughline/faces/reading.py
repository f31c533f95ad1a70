"""Read faces for training. Each picture is shown whole, and mirrored with probability 1/2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from throughline.images.reading import PictureReader
from throughline.workloads.faces import SIDE


def reader(content: Mapping[str, Any], folder: Path, parameters: Any, seed: int) -> PictureReader:
    """Return a reader (`rank.data.Decoder`) for the shards in `folder` that a manifest (`content`) lists."""
    return PictureReader(content, folder, SIDE, seed, crops=False)
