"""The manifest of one sequence length: every shard with its rows and digests, and how they were made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

SCHEMA = 1
SPLITS = ("training", "test")


def merge(
    corpus: str, verified: Sequence[Path], vocabulary: Vocabulary, parameters: dict[str, Any], path: Path
) -> None:
    """Write the manifest from the verification results of all shards.

    Where masks are drawn while reading, it says which words (`ranges` of their ids) may stand in for a token, and how
    they are drawn is part of the content's digest.
    UserError where shards differ in shape or vocabulary, a name says no split, or no training example is left.
    """
    results = [files.read_json(file) for file in verified]
    results.sort(key=lambda result: (SPLITS.index(split_of(result["file"])), result["file"]))
    sequence, predictions = _size(results, vocabulary, verified, path)
    shards = [_entry(result) for result in results]
    if not sum(shard["rows"] for shard in shards if shard["split"] == "training"):
        raise UserError(
            f"the corpus {corpus} has no training example of length {sequence}",
            why="the dump has too few articles for so many shards, or none at all",
            next_step="use a larger dump, or fewer corpus.shards in config.yaml",
        )
    files.write_json(
        path,
        {
            "schema": SCHEMA,
            "corpus": corpus,
            "sequence": sequence,
            "predictions": predictions,
            "vocabulary": _described(vocabulary, bool(parameters.get("dynamic"))),
            "parameters": parameters,
            "parameters_digest": _digest(parameters),
            "content_digest": _content_digest(shards, parameters),
            "rows": sum(shard["rows"] for shard in shards),
            "shards": shards,
        },
    )


def _size(
    results: Sequence[dict[str, Any]], vocabulary: Vocabulary, verified: Sequence[Path], path: Path
) -> tuple[int, int]:
    """The sequence length and predictions that all shards have."""
    shapes = {(result["sequence"], result["predictions"], result["vocabulary_sha256"]) for result in results}
    if len(shapes) != 1 or {shape[2] for shape in shapes} != {vocabulary.sha256}:
        raise UserError(
            f"the shards of {path} do not belong together",
            why="they differ in sequence length, predictions or vocabulary: " + _listed(shapes),
            next_step=f"make them again: snakemake --force {' '.join(map(str, verified))}",
        )
    ((sequence, predictions, _),) = shapes
    return sequence, predictions


def _entry(result: dict[str, Any]) -> dict[str, Any]:
    """A shard as the manifest lists it, from its verification."""
    kept: dict[str, Any] = {key: result[key] for key in ("source", "rows", "sha256", "content_digest") if key in result}
    return {"file": result["file"], "split": split_of(result["file"]), **kept}


def _described(vocabulary: Vocabulary, dynamic: bool) -> dict[str, Any]:
    """The vocabulary as far as training needs it; the words that may stand in for a token where it draws masks."""
    specials = {name: getattr(vocabulary, name) for name in ("pad", "unk", "cls", "sep", "mask")}
    words = {"words": _ranges(vocabulary)} if dynamic else {}
    return {"size": len(vocabulary), "sha256": vocabulary.sha256, **specials, **words}


def _content_digest(shards: Sequence[dict[str, Any]], parameters: dict[str, Any]) -> str:
    """The digest of what training reads: the shards' content and, where it draws masks, how."""
    content: list[Any] = [(shard["file"], shard["content_digest"]) for shard in shards]
    if parameters.get("dynamic"):
        content.append({name: parameters[name] for name in ("predictions", "probability", "seed")})
    return _digest(content)


def _ranges(vocabulary: Vocabulary) -> list[list[int]]:
    from throughline.corpus.shards import masks

    return masks.ranges(vocabulary.words)


def _digest(value: Any) -> str:
    """SHA-256 of the value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def split_of(name: str) -> str:
    """training or test, by the word in the file's name (NVIDIA's names hold it anywhere)."""
    for split in SPLITS:
        if split in name:
            return split
    raise UserError(
        f"the shard {name} belongs to no split",
        why="a shard's name has to hold the word `training` or `test`",
        next_step="rename the file",
    )


def _listed(shapes: set[tuple[int, int, str]]) -> str:
    return "; ".join(f"{sequence}/{predictions}/{sha256[:12]}" for sequence, predictions, sha256 in sorted(shapes))
