"""The steps that make GPT-2's tokens, each with its command line (command.py).

parts: tokens of all parts, in their order
vocabulary: folder of encoder.json and vocab.bpe, or the user's own tokenizer.json
digest: SHA-256 of what decides the shards; it is stored in them
"""

from pathlib import Path
from typing import Any


def vocabulary(output: Path) -> None:
    """Write GPT-2's published vocabulary. It is rebuilt from an installed package and checked by its SHA-256.

    output: a folder for encoder.json and vocab.bpe
    """
    from throughline.corpus.bpe import vocabulary

    vocabulary.build(output)


def tokenize(articles: Path, vocabulary: Path, output: Path) -> None:
    """Encode the articles of one part as GPT-2's tokens.

    articles: articles as JSON lines
    """
    from throughline.corpus.bpe import shards

    shards.tokenize(articles, vocabulary, output)


def shard(parts: list[Path], position: int, shards: int, digest: str, output: Path) -> None:
    """Gather one shard of GPT-2's tokens from the tokens of all parts.

    position: of the shard among all shards, training shards first
    shards: number of shards
    """
    from throughline.corpus.bpe.shards import gather

    gather(parts, position, shards, digest, output)


def verify(shard: Path, vocabulary: Path, digest: str, output: Path) -> None:
    """Check one shard of GPT-2's tokens, and write its digests."""
    from throughline.corpus.bpe import shards
    from throughline.files import write_json

    result = shards.verify(shard, vocabulary, digest)
    print(f"{result['file']}: {result['tokens']:,} tokens in {result['documents']:,} documents checked")
    write_json(output, result)


def manifest(corpus: str, verified: list[Path], parameters: dict[str, Any], output: Path) -> None:
    """Write the manifest of all verified shards of GPT-2's tokens.

    corpus: the corpus's name
    verified: results of all verifications
    parameters: JSON, recorded and digested
    """
    from throughline.corpus import manifest

    manifest.merge_tokens(corpus, verified, parameters, output)
