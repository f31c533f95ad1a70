"""Check a dump and note where it is cut into parts."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline.corpus import dumps, published
from throughline.files import command_line


def main() -> None:
    """The positions of all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dump",
        type=Path,
        required=True,
        nargs="+",
        help=".xml or .xml.bz2 files in their order; or a download's listing",
    )
    parser.add_argument("--parts", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    named = [published.listed(path) if path.suffix == ".json" else [path] for path in arguments.dump]
    dumps.write(arguments.output, dumps.cut([path for paths in named for path in paths], arguments.parts))


if __name__ == "__main__":
    command_line(main)
