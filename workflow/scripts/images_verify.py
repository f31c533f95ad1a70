"""Check one shard of pictures: decode each of them once, and write its digests."""

import argparse
from pathlib import Path

from throughline import files
from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listing", type=Path, required=True)
    parser.add_argument("--shard", type=Path, required=True)
    parser.add_argument("--damaged", choices=["refuse", "skip"], required=True)
    parser.add_argument("--side", type=int, help="pixels of every picture in height and width")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.images import verification

    result = verification.verify(arguments.shard, arguments.listing, arguments.damaged == "skip", arguments.side)
    print(f"{result['file']}: {result['rows']:,} pictures decoded")
    files.write_json(arguments.output, result)


if __name__ == "__main__":
    command_line(main, single=True)
