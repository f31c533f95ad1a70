"""The manifest of a corpus's tokens: the place of each shard's tokens in its file, and how the shards were made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from throughline.corpus.bpe import vocabulary
from throughline.corpus.bpe.reading import KIND
from throughline.corpus.shards.manifest import dated, no_text
from throughline.datasets import manifest


def merge(corpus: str, verified: Sequence[Path], parameters: dict[str, Any], path: Path) -> None:
    """Write the manifest from the verification results of all shards; UserError if there are no tokens to train on."""
    kept = "source", "tokens", "documents", "type", "offset", "sha256", "content_digest"
    results = manifest.read_results(verified)
    shards = manifest.entries(results, *kept)
    manifest.require_training(shards, "tokens", no_text(f"the corpus {corpus} has no tokens to train on"))
    published = {"size": vocabulary.SIZE, "sha256": vocabulary.SHA256}
    words = next((result["vocabulary"] for result in results if "vocabulary" in result), published)
    head = {"kind": KIND, "corpus": corpus, "vocabulary": words, **dated(parameters, path)}
    facts = {unit: sum(shard[unit] for shard in shards) for unit in ("tokens", "documents")}
    content = [(Path(shard["file"]).stem, shard["content_digest"]) for shard in shards]
    manifest.write(path, head, parameters, facts, shards, content)
