"""Gather one shard of clicks from all parts."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=Path, required=True, nargs="+")
    parser.add_argument("--shard", type=int, required=True, help="its number, training shards first")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.clicks import making

    rows = making.gather(arguments.parts, arguments.shard, arguments.output)
    print(f"{arguments.output.name}: {rows:,} rows")


if __name__ == "__main__":
    command_line(main, single=True)
