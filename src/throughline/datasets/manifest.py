"""A manifest: every shard of a folder with its digests, and everything that decided their content.

A data package adds to it what is particular to its data. A manifest is written only when all shards have passed
verification.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from throughline import files
from throughline.datasets.splits import SPLITS, split_of
from throughline.files import UserError
from throughline.spec import canonical

SCHEMA = 1
Entry = dict[str, Any]
"""A shard in a manifest, or the result of its verification."""


def verified(path: Path, facts: Entry, content_digest: str, index: Path | None = None, **further: Any) -> Entry:
    """Return the result of a verification that a shard passed: its names, `facts`, digests, then `further`.

    If the shard is a link to a file of another maker, `source` is the name of that file. `index`: the shard's index.
    """
    source = {"source": Path(os.readlink(path)).name} if path.is_symlink() else {}
    beside = {"index": {"file": index.name, "sha256": files.sha256(index)}} if index else {}
    digests = {"sha256": files.sha256(path), **beside, "content_digest": content_digest}
    return {"schema": SCHEMA, "file": path.name, **source, **facts, **digests, **further}


def read_results(paths: Sequence[Path]) -> list[Entry]:
    """Read the files with verification results and sort them as a manifest lists their shards."""
    results = [files.read_json(file) for file in paths]
    return sorted(results, key=lambda result: (SPLITS.index(split_of(result["file"])), result["file"]))


def entries(results: Sequence[Entry], *kept: str) -> list[Entry]:
    """Return the shards of a manifest: of each result the file, the split and the keys in `kept`."""
    return [
        {
            "file": result["file"],
            "split": split_of(result["file"]),
            **{key: result[key] for key in kept if key in result},
        }
        for result in results
    ]


def require_training(shards: Sequence[Entry], unit: str, error: UserError) -> None:
    """Raise `error` unless the training shards have any of the unit, such as rows."""
    if not sum(shard[unit] for shard in shards if shard["split"] == "training"):
        raise error


def write(
    path: Path,
    head: Mapping[str, Any],
    parameters: Mapping[str, Any],
    facts: Mapping[str, Any],
    shards: Sequence[Entry],
    content: Sequence[Any] | None = None,
) -> None:
    """Write a manifest. `head` comes before the parameters that decided the shards, `facts` after them.

    `content`: what the digest of the content is computed from, if that is not each shard's name and digest.
    """
    if content is None:
        content = [(shard["file"], shard["content_digest"]) for shard in shards]
    digests = {"parameters_digest": digest(parameters), "content_digest": digest(content)}
    files.write_json(path, {"schema": SCHEMA, **head, "parameters": parameters, **digests, **facts, "shards": shards})


def digest(value: Any) -> str:
    """Return the SHA-256 of the value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
