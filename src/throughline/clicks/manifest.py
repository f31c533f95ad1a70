"""The manifest of the clicks: every shard with its digests, and how many lines of each log are malformed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from throughline import files
from throughline.clicks.reading import KIND, opened
from throughline.corpus.shards.manifest import digest, entries, read_results
from throughline.files import UserError

SCHEMA = 1


def merge(
    name: str, source: str, verified: Sequence[Path], parts: Sequence[Path], parameters: dict[str, Any], path: Path
) -> dict[str, Any]:
    """Write the manifest from the verification results of all shards and return it."""
    shards = entries(read_results(verified), "rows", "clicks", "sha256", "content_digest")
    logs = [_log(part) for part in parts]
    rows = sum(shard["rows"] for shard in shards)
    if not sum(shard["rows"] for shard in shards if shard["split"] == "training"):
        raise UserError(f"the clicks {name} have no row to train on", next_step="give logs with more lines")
    content = {
        "schema": SCHEMA,
        "kind": KIND,
        "clicks": name,
        "source": source,
        "parameters": parameters,
        "parameters_digest": digest(parameters),
        "content_digest": digest([(shard["file"], shard["content_digest"]) for shard in shards]),
        "rows": rows,
        "malformed": sum(log["malformed"] for log in logs),
        "share_of_clicks": sum(shard["clicks"] for shard in shards) / rows,
        "logs": logs,
        "shards": shards,
    }
    files.write_json(path, content)
    return content


def _log(part: Path) -> dict[str, Any]:
    with opened(part) as stream:
        return {
            "file": str(stream.attrs["source"]),
            "lines": int(stream.attrs["lines"]),
            "malformed": int(stream.attrs["malformed"]),
            "first_malformed": [int(line) for line in stream.attrs["first_malformed"]],
        }
