"""Parse one log of clicks."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--part", type=int, required=True)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument(
        "--malformed-at-most", type=float, required=True, help="largest allowed share of malformed lines"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.clicks import making

    asked = arguments.part, arguments.shards, arguments.malformed_at_most
    lines, malformed = making.parse(arguments.source, *asked, arguments.output)
    print(f"{arguments.source.name}: {lines:,} lines, {malformed:,} of them malformed and left out")


if __name__ == "__main__":
    command_line(main, single=True)
