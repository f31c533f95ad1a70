"""The manifest of the images: the classes, and statistics of the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import PIL
from PIL import features

from throughline.datasets import manifest
from throughline.files import UserError
from throughline.images import listing
from throughline.images.reading import KIND


def merge(name: str, verified: Sequence[Path], listed: Path, parameters: dict[str, Any], path: Path) -> None:
    """Write the manifest from the verification results of all shards."""
    nothing = UserError(f"the images {name} have no picture to train on", next_step="name a folder with more pictures")
    results = manifest.read_results(verified, "rows", nothing)
    first = listing.first_line(listed)
    classes = {"classes": len(first["classes"]), "class_names": first["classes"], "attribution": first["attribution"]}
    facts = {
        "verified_with": {"pillow": PIL.__version__, "libjpeg_turbo": features.version("libjpeg_turbo")},
        **{name: sum(result[name] for result in results) for name in ("rows", "skipped")},
        "statistics": _statistics([result["statistics"] for result in results]),
    }
    head, kept = {"kind": KIND, "images": name, **classes}, ("rows", "skipped", "sha256", "index", "content_digest")
    manifest.write(path, head, parameters, facts, results, kept)


def _statistics(of_shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the statistics of all shards together."""
    return {
        **{name: sum(shard[name] for shard in of_shards) for name in ("bytes", "pixels")},
        **{name: _summed(shard[name] for shard in of_shards) for name in ("formats", "modes")},
        **{name: _span(shard[name] for shard in of_shards if shard[name][1]) for name in ("width", "height")},
    }


def _summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = sum(map(Counter, counts), Counter())
    return dict(sorted(total.items()))


def _span(spans: Iterable[list[int]]) -> list[int]:
    least, most = zip(*spans, strict=True)
    return [min(least), max(most)]
