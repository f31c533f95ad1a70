"""The manifest of one sequence length: every shard with its number of rows and digests, and how they were made."""

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

    If masks are drawn while reading, the manifest lists the words that may replace a token (as `ranges` of their ids),
    and the masking parameters are part of the content's digest.
    UserError if shards differ in shape or vocabulary, if a name does not tell its split, or if there is no training
    example.
    """
    results = read_results(verified)
    shapes = {(result["sequence"], result["predictions"], result["vocabulary_sha256"]) for result in results}
    if len(shapes) != 1 or {shape[2] for shape in shapes} != {vocabulary.sha256}:
        listed = (f"{sequence}/{predictions}/{sha256[:12]}" for sequence, predictions, sha256 in sorted(shapes))
        raise UserError(
            f"the shards of {path} do not belong together",
            why=f"they differ in sequence length, predictions or vocabulary: {'; '.join(listed)}",
            next_step=f"make them again: {files.snakemake('--force', *map(str, verified))}",
        )
    ((sequence, predictions, _),) = shapes
    shards = entries(results, "source", "rows", "sha256", "content_digest")
    if not sum(shard["rows"] for shard in shards if shard["split"] == "training"):
        raise UserError(
            f"the corpus {corpus} has no training example of length {sequence}",
            why="the dump has too few articles for so many shards, or none at all",
            next_step="use a larger dump, or fewer corpus.shards in config.yaml",
        )
    described: dict[str, Any] = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    described["lower_case"] = parameters.get("lower_case", True)
    described |= {name: getattr(vocabulary, name) for name in ("pad", "unk", "cls", "sep", "mask")}
    content: list[Any] = [(shard["file"], shard["content_digest"]) for shard in shards]
    if parameters.get("dynamic"):
        from throughline.corpus.shards import masks

        described["words"] = masks.ranges(vocabulary.words)
        content.append({name: parameters[name] for name in ("predictions", "probability", "seed")})
    files.write_json(
        path,
        {
            "schema": SCHEMA,
            "corpus": corpus,
            "sequence": sequence,
            "predictions": predictions,
            "vocabulary": described,
            "parameters": parameters,
            "parameters_digest": digest(parameters),
            "content_digest": digest(content),
            "rows": sum(shard["rows"] for shard in shards),
            "shards": shards,
        },
    )


def read_results(verified: Sequence[Path]) -> list[dict[str, Any]]:
    """Read the verification results and sort them as a manifest lists their shards."""
    results = [files.read_json(file) for file in verified]
    return sorted(results, key=lambda result: (SPLITS.index(split_of(result["file"])), result["file"]))


def entries(results: Sequence[dict[str, Any]], *kept: str) -> list[dict[str, Any]]:
    """Return the shards of a manifest: of each result the file, the split and the keys in `kept`."""
    return [
        {
            "file": result["file"],
            "split": split_of(result["file"]),
            **{key: result[key] for key in kept if key in result},
        }
        for result in results
    ]


def digest(value: Any) -> str:
    """Return the SHA-256 of the value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def split_of(name: str) -> str:
    """Return "training" or "test", whichever word is in the file's name. (In NVIDIA's names it can be anywhere.)"""
    for split in SPLITS:
        if split in name:
            return split
    raise UserError(
        f"the shard {name} belongs to no split",
        why="a shard's name has to hold the word `training` or `test`",
        next_step="rename the file",
    )
