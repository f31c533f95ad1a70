"""Extract the text of the articles in one part of the dump, and prove that none is missing."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    """One part's articles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cut", type=Path, required=True, help="parts.json")
    parser.add_argument("--part", type=int, required=True, help="counted from 0")
    parser.add_argument("--output", type=Path, required=True, help="articles as JSON lines")
    parser.add_argument("--counts", type=Path, required=True, help="what was counted, as JSON")
    parser.add_argument("--extractor", choices=["wikiextractor", "throughline"], default="wikiextractor")
    parser.add_argument("--stall-s", type=float, default=900, help="stop when nothing moves for so many seconds")
    arguments = parser.parse_args()
    from throughline.corpus.source import dumps
    from throughline.corpus.text import extraction

    dump = dumps.read(arguments.cut)
    extraction.extract(
        dump,
        arguments.part,
        arguments.output,
        arguments.counts,
        extractor=arguments.extractor,
        stall_s=arguments.stall_s,
    )


if __name__ == "__main__":
    command_line(main, single=True)
