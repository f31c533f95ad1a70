"""Check a dump and note where it is cut into parts."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    files = ".xml or .xml.bz2 files in their order; or a download's listing"
    parser.add_argument("--dump", type=Path, required=True, nargs="+", help=files)
    parser.add_argument("--parts", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.source import dumps, published

    listed = (published.listed(path) if path.suffix == ".json" else [path] for path in arguments.dump)
    dumps.write(arguments.output, dumps.cut([path for paths in listed for path in paths], arguments.parts))


if __name__ == "__main__":
    command_line(main, single=True)
