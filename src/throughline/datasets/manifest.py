"""A manifest: every shard of a folder with its digests, and everything that decided their content.

The verification of a shard writes a result. When all shards have passed, the manifest is written from their results. A
data package adds to both what is particular to its data.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from throughline import files
from throughline.datasets.shards import SPLITS, split_of
from throughline.files import UserError
from throughline.spec import canonical

SCHEMA = 1
Result = dict[str, Any]
"""The result of a shard's verification."""


def verified(path: Path, facts: Result, content_digest: str, index: Path | None = None, **further: Any) -> Result:
    """Return the result of a verification that a shard passed: its names, `facts`, digests, then `further`.

    If the shard is a link to a file of another maker, `source` is the name of that file. `index`: the shard's index.
    """
    source = {"source": Path(os.readlink(path)).name} if path.is_symlink() else {}
    beside = {"index": {"file": index.name, "sha256": files.sha256(index)}} if index else {}
    digests = {"sha256": files.sha256(path), **beside, "content_digest": content_digest}
    return {"schema": SCHEMA, "file": path.name, **source, **facts, **digests, **further}


def read_results(paths: Sequence[Path], unit: str, nothing: UserError) -> list[Result]:
    """Read the results of all shards, in the order of a manifest: training shards first, then by name.

    Raises `nothing` if the training shards together have none of the unit, such as `rows`.
    """
    results = [files.read_json(file) for file in paths]
    if not sum(result[unit] for result in results if split_of(result["file"]) == "training"):
        raise nothing
    return sorted(results, key=lambda result: (SPLITS.index(split_of(result["file"])), result["file"]))


def write(
    path: Path,
    head: Mapping[str, Any],
    parameters: Mapping[str, Any],
    facts: Mapping[str, Any],
    results: Sequence[Result],
    kept: Sequence[str],
    content: Sequence[Any] | None = None,
) -> None:
    """Write a manifest. `head` comes before the parameters that decided the shards, `facts` after them.

    kept: what a shard's entry has of its result, beside file and split. content: what the digest of the content is
    computed from, if that is not each shard's file name and digest.
    """
    if content is None:
        content = [(result["file"], result["content_digest"]) for result in results]
    digests = {"parameters_digest": digest(parameters), "content_digest": digest(content)}
    shards = []
    for result in results:
        entry = {key: result[key] for key in kept if key in result}
        shards.append({"file": result["file"], "split": split_of(result["file"]), **entry})
    files.write_json(path, {"schema": SCHEMA, **head, "parameters": parameters, **digests, **facts, "shards": shards})


def digest(value: Any) -> str:
    """Return the SHA-256 of the value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
