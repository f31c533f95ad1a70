"""What training reads faces with: pictures that are shown whole, and mirrored every other time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from throughline.images.reading import Pictures
from throughline.workloads.faces import SIDE


def reader(content: Mapping[str, Any], folder: Path, parameters: Any, seed: int) -> Pictures:
    """What reads the shards that a manifest (`content`) lists beside it, in `folder` (`rank.data.Decoder`)."""
    return Pictures(content, folder, SIDE, seed, crops=False)
