"""Make one shard of pre-training examples.

tokens: the shard's tokens
shard: counted from 0 within its split
parameters: JSON: sequence_length, predictions, probability ...
unpacked: write it uncompressed
memory_mb: data to hold in memory at a time; the rest goes through files
"""

from pathlib import Path
from typing import Literal

from throughline.command import run


def main(
    tokens: Path,
    vocabulary: Path,
    split: Literal["training", "test"],
    shard: int,
    parameters: str,
    output: Path,
    unpacked: bool = False,
    memory_mb: int = 256,
) -> None:
    from throughline.corpus.shards import Parameters, making

    how = Parameters.from_json(parameters)
    making.make(tokens, vocabulary, how, split, shard, output, unpacked=unpacked, memory_bytes=memory_mb << 20)


if __name__ == "__main__":
    run(main, single=True)
