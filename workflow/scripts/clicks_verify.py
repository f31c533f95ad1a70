"""Check one shard of clicks against the parts, and write its digests."""

import argparse
from pathlib import Path

from throughline import files
from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=Path, required=True)
    parser.add_argument("--parts", type=Path, required=True, nargs="+")
    parser.add_argument("--number", type=int, required=True, help="its number, training shards first")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.clicks import verification

    result = verification.verify(arguments.shard, arguments.parts, arguments.number)
    print(f"{result['file']}: {result['rows']:,} rows, {result['clicks']:,} clicks")
    files.write_json(arguments.output, result)


if __name__ == "__main__":
    command_line(main, single=True)
