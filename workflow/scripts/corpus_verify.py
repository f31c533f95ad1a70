"""Check every promise of one shard, whoever made it, and write its digests and statistics."""

import argparse
from pathlib import Path

from throughline import files
from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=Path, required=True)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--parameters", help="JSON: what the shard must have; left out if its maker is unknown")
    parser.add_argument(
        "--size", type=int, nargs=2, help="sequence length and predictions, if nothing else is known of the shard"
    )
    parser.add_argument(
        "--tokens", type=Path, help="the tokens that the shard was made from; its pairs are looked up there"
    )
    parser.add_argument(
        "--memory-mb", type=int, default=256, help="data to hold in memory at a time; the rest goes through files"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.shards import Parameters, verification
    from throughline.corpus.text import vocabulary

    parameters = Parameters.from_json(arguments.parameters) if arguments.parameters else None
    words = vocabulary.read(arguments.vocabulary)
    size = tuple(arguments.size) if arguments.size else None
    memory_bytes = arguments.memory_mb << 20
    result = verification.verify(arguments.shard, words, parameters, arguments.tokens, size, memory_bytes)
    looked_up = result["statistics"].get("pairs_looked_up")
    text = "no text to look them up in" if looked_up is None else f"{looked_up:,} of them looked up in the text"
    print(f"{result['file']}: {result['rows']:,} rows checked, {text}")
    files.write_json(arguments.output, result)


if __name__ == "__main__":
    command_line(main, single=True)
