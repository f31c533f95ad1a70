"""Gather one shard of GPT-2's tokens from the tokens of all parts."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=Path, required=True, nargs="+", help="tokens of all parts, in their order")
    parser.add_argument("--split", choices=["training", "test"], required=True)
    parser.add_argument("--shard", type=int, required=True, help="counted from 0 within its split")
    parser.add_argument("--training", type=int, required=True, help="training shards in all")
    parser.add_argument("--test", type=int, required=True, help="test shards in all")
    parser.add_argument("--digest", required=True, help="SHA-256 of what decides the shards; it is stored in the shard")
    parser.add_argument(
        "--memory-mb", type=int, default=256, help="data to hold in memory at a time; the rest goes through files"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.bpe import making

    number = arguments.shard + (arguments.training if arguments.split == "test" else 0)
    shard = number, arguments.training + arguments.test, arguments.digest, arguments.output
    making.gather(arguments.parts, *shard, memory_bytes=arguments.memory_mb << 20)


if __name__ == "__main__":
    command_line(main, single=True)
