"""The manifest of a corpus's tokens: every shard with its digests and the place of its tokens in the file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.bpe import vocabulary
from throughline.corpus.bpe.reading import KIND
from throughline.corpus.shards.manifest import digest, entries, read_results
from throughline.files import UserError

SCHEMA = 1


def merge(corpus: str, verified: Sequence[Path], parameters: dict[str, Any], path: Path) -> None:
    """Write the manifest from the verification results of all shards; UserError if there are no tokens to train on."""
    kept = "source", "tokens", "documents", "type", "offset", "sha256", "content_digest"
    shards = entries(read_results(verified), *kept)
    if not sum(shard["tokens"] for shard in shards if shard["split"] == "training"):
        raise UserError(
            f"the corpus {corpus} has no tokens to train on",
            why="the dump has too few articles for so many shards, or none at all",
            next_step="use a larger dump, or fewer corpus.shards in config.yaml",
        )
    files.write_json(
        path,
        {
            "schema": SCHEMA,
            "kind": KIND,
            "corpus": corpus,
            "vocabulary": {"size": vocabulary.SIZE, "sha256": vocabulary.SHA256},
            "parameters": parameters,
            "parameters_digest": digest(parameters),
            "content_digest": digest([(Path(shard["file"]).stem, shard["content_digest"]) for shard in shards]),
            "tokens": sum(shard["tokens"] for shard in shards),
            "documents": sum(shard["documents"] for shard in shards),
            "shards": shards,
        },
    )
