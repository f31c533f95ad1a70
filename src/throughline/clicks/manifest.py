"""The manifest of the clicks: how many lines of each log are malformed, and the share of clicks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from throughline.clicks.reading import KIND, opened
from throughline.datasets import manifest
from throughline.files import UserError


def merge(
    name: str, source: str, verified: Sequence[Path], parts: Sequence[Path], parameters: dict[str, Any], path: Path
) -> dict[str, Any]:
    """Write the manifest from the verification results of all shards and return what it says of the rows."""
    nothing = UserError(f"the clicks {name} have no row to train on", next_step="give logs with more lines")
    shards = manifest.read_results(verified, "rows", nothing)
    logs = [_log(part) for part in parts]
    rows = sum(shard["rows"] for shard in shards)
    facts = {
        "rows": rows,
        "malformed": sum(log["malformed"] for log in logs),
        "share_of_clicks": sum(shard["clicks"] for shard in shards) / rows,
        "logs": logs,
    }
    head, kept = {"kind": KIND, "clicks": name, "source": source}, ("rows", "clicks", "sha256", "content_digest")
    manifest.write(path, head, parameters, facts, shards, kept)
    return facts


def _log(part: Path) -> dict[str, Any]:
    with opened(part) as stream:
        return {
            "file": str(stream.attrs["source"]),
            "lines": int(stream.attrs["lines"]),
            "malformed": int(stream.attrs["malformed"]),
            "first_malformed": [int(line) for line in stream.attrs["first_malformed"]],
        }
