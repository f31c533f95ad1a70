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
    nothing = no_text(f"the corpus {corpus} has no tokens to train on")
    results = manifest.read_results(verified, "tokens", nothing)
    published = {"size": vocabulary.SIZE, "sha256": vocabulary.SHA256}
    words = next((result["vocabulary"] for result in results if "vocabulary" in result), published)
    head = {"kind": KIND, "corpus": corpus, "vocabulary": words, **dated(parameters, path)}
    facts = {unit: sum(result[unit] for result in results) for unit in ("tokens", "documents")}
    content = [(Path(result["file"]).stem, result["content_digest"]) for result in results]
    manifest.write(path, head, parameters, facts, results, kept, content)
