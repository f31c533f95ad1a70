"""Gather one shard of GPT-2's tokens from the tokens of all parts.

parts: tokens of all parts, in their order
shard: counted from 0 within its split
training: training shards in all
test: test shards in all
digest: SHA-256 of what decides the shards; it is stored in the shard
memory_mb: data to hold in memory at a time; the rest goes through files
"""

from pathlib import Path
from typing import Literal

from throughline.command import run


def main(
    parts: list[Path],
    split: Literal["training", "test"],
    shard: int,
    training: int,
    test: int,
    digest: str,
    output: Path,
    memory_mb: int = 256,
) -> None:
    from throughline.corpus.bpe import making

    number = shard + (training if split == "test" else 0)
    making.gather(parts, number, training + test, digest, output, memory_bytes=memory_mb << 20)


if __name__ == "__main__":
    run(main, single=True)
