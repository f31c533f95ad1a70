"""Check a dump or text files, and write down where they are cut into parts."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    files = ".xml or .xml.bz2 files in their order; or a download's listing"
    parser.add_argument("--dump", type=Path, required=True, nargs="+", help=files)
    parser.add_argument("--text", action="store_true", help="the files are plain text, or JSON lines")
    parser.add_argument("--parts", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.source import documents, dumps, parts

    if arguments.text:
        documents.write_cut(arguments.dump, arguments.parts, arguments.output)
        return
    named = [path for name in arguments.dump for path in (_listed(name) if name.suffix == ".json" else [name])]
    cut = dumps.cut(named, arguments.parts)
    parts.check_articles(cut)
    dumps.write(arguments.output, cut)


def _listed(listing: Path) -> list[Path]:
    from throughline.corpus.source import published

    return published.listed(listing)


if __name__ == "__main__":
    command_line(main, single=True)
