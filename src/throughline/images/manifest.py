"""The manifest of the images: the classes, every shard with its digests, and statistics of the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import PIL
from PIL import features

from throughline import files
from throughline.corpus.shards.manifest import digest, entries, read_results
from throughline.images import listing
from throughline.images.reading import KIND

SCHEMA = 1


def merge(name: str, verified: Sequence[Path], listed: Path, parameters: dict[str, Any], path: Path) -> None:
    """Write the manifest from the verification results of all shards."""
    results = read_results(verified)
    shards = entries(results, "rows", "skipped", "sha256", "index", "content_digest")
    first, figures = listing.first_line(listed), [result["statistics"] for result in results]
    files.write_json(
        path,
        {
            "schema": SCHEMA,
            "kind": KIND,
            "images": name,
            "classes": len(first["classes"]),
            "class_names": first["classes"],
            "attribution": first["attribution"],
            "parameters": parameters,
            "parameters_digest": digest(parameters),
            "content_digest": digest([(shard["file"], shard["content_digest"]) for shard in shards]),
            "verified_with": {"pillow": PIL.__version__, "libjpeg_turbo": features.version("libjpeg_turbo")},
            "rows": sum(shard["rows"] for shard in shards),
            "skipped": sum(shard["skipped"] for shard in shards),
            "statistics": {
                "bytes": sum(one["bytes"] for one in figures),
                "pixels": sum(one["pixels"] for one in figures),
                **{name: _summed(one[name] for one in figures) for name in ("formats", "modes")},
                **{name: _span(one[name] for one in figures if one[name][1]) for name in ("width", "height")},
            },
            "shards": shards,
        },
    )


def _summed(counts: Any) -> dict[str, int]:
    total: Counter[str] = sum(map(Counter, counts), Counter())
    return dict(sorted(total.items()))


def _span(spans: Any) -> list[int]:
    least, most = zip(*spans, strict=True)
    return [min(least), max(most)]
