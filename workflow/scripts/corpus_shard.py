"""Make one shard of pre-training examples."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=Path, required=True, help="the shard's tokens")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--split", choices=["training", "test"], required=True)
    parser.add_argument("--shard", type=int, required=True, help="counted from 0 within its split")
    parser.add_argument("--parameters", required=True, help="JSON: sequence, predictions, probability ...")
    parser.add_argument("--unpacked", action="store_true", help="write it uncompressed")
    parser.add_argument(
        "--memory-mb", type=int, default=256, help="data to hold in memory at a time; the rest goes through files"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.shards import Parameters, making

    parameters = Parameters.from_json(arguments.parameters)
    shard = arguments.split, arguments.shard, arguments.output
    how = {"unpacked": arguments.unpacked, "memory_bytes": arguments.memory_mb << 20}
    making.make(arguments.tokens, arguments.vocabulary, parameters, *shard, **how)


if __name__ == "__main__":
    command_line(main, single=True)
