"""From a shard's tokens to the shard: the one place where examples, masks and the file meet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from throughline.corpus.allocator import Allocator
from throughline.corpus.shards import instances, layout, pairs, writing
from throughline.corpus.shards.instances import Arrays
from throughline.corpus.shards.parameters import Parameters
from throughline.corpus.text import tokens, vocabulary
from throughline.files import UserError


def make(
    tokens_file: Path,
    vocabulary_file: Path,
    parameters: Parameters,
    split: str,
    shard: int,
    path: Path,
    *,
    unpacked: bool = False,
    memory_bytes: int = tokens.MEMORY_BYTES,
) -> None:
    """Write the shard number `shard` of `split` (training or test), all copies in it, shuffled.

    Tokens and examples beyond `memory_bytes` lie in mapped temporary files.
    """
    words = vocabulary.read(vocabulary_file)
    allocator = Allocator(path.parent, memory_bytes)
    documents, facts = tokens.read(tokens_file, allocator)
    if facts["vocabulary_sha256"] != words.sha256:
        raise UserError(
            f"{tokens_file} was made with another vocabulary than {vocabulary_file}",
            next_step=f"make it again: snakemake --force {tokens_file}",
        )
    order = pairs.examples(documents, parameters, split, shard, allocator)
    rows = layout.ROWS_PER_CHUNK
    blocks = _releasing(allocator, instances.blocks(documents, order, parameters, words, split, shard, rows))
    described = json.dumps(parameters.recorded(words.sha256), sort_keys=True, separators=(",", ":"))
    kinds = layout.unmasked_types(len(words)) if parameters.dynamic else layout.TYPES
    extent = len(order), parameters.sequence, parameters.predictions
    writing.write(path, blocks, *extent, described, kinds=kinds, unpacked=unpacked)


def _releasing(allocator: Allocator, blocks: Iterator[Arrays]) -> Iterator[Arrays]:
    for block in blocks:
        yield block
        allocator.release()
