"""Extract the text of the articles in one part of the dump, and prove that none is missing."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cut", type=Path, required=True, help="parts.json")
    parser.add_argument("--part", type=int, required=True, help="counted from 0, over all sources")
    parser.add_argument("--output", type=Path, required=True, help="articles as JSON lines")
    parser.add_argument("--counts", type=Path, required=True, help="what was counted, as JSON")
    parser.add_argument("--extractor", choices=["wikiextractor", "throughline"], default="wikiextractor")
    parser.add_argument("--stall-s", type=float, default=900, help="stop when nothing moves for so many seconds")
    arguments = parser.parse_args()
    from throughline.corpus.source import documents, dumps
    from throughline.corpus.text import extraction
    from throughline.files import read_json

    if read_json(arguments.cut).get("kind") == documents.KIND:
        found = documents.articles(arguments.cut, arguments.part)
        extraction.take_over(found, arguments.part, arguments.output, arguments.counts)
        return
    how = {"extractor": arguments.extractor, "stall_s": arguments.stall_s}
    extraction.extract(dumps.read(arguments.cut), arguments.part, arguments.output, arguments.counts, **how)


if __name__ == "__main__":
    command_line(main, single=True)
