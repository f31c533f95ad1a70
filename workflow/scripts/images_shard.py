"""Write one shard of pictures and its index."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listing", type=Path, required=True)
    parser.add_argument("--source", required=True, help="a folder, or `sample`")
    parser.add_argument("--damaged", choices=["refuse", "skip"], required=True)
    parser.add_argument("--output", type=Path, required=True, help="<split>_<number>.tar; the index is beside it")
    arguments = parser.parse_args()
    from throughline.images import making

    skipped = making.make(arguments.listing, arguments.source, arguments.damaged == "skip", arguments.output)
    if skipped:
        print(f"{arguments.output.name}: {skipped:,} damaged pictures left out")


if __name__ == "__main__":
    command_line(main, single=True)
