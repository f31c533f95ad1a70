"""Check a dump and note where it is cut into parts."""

from __future__ import annotations

import argparse
from pathlib import Path

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
    from throughline.corpus.source import dumps

    named = [path for given in arguments.dump for path in (_listed(given) if given.suffix == ".json" else [given])]
    dumps.write(arguments.output, dumps.cut(named, arguments.parts))


def _listed(listing: Path) -> list[Path]:
    from throughline.corpus.source import published

    return published.listed(listing)


if __name__ == "__main__":
    command_line(main, single=True)
