"""Tokenize the articles of one part."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--articles", type=Path, required=True, help="articles as JSON lines")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--cased", action="store_true", help="the text keeps its capitals and accents")
    parser.add_argument("--lines", action="store_true", help="every line of an article is a sentence already")
    parser.add_argument(
        "--memory-mb", type=int, default=256, help="data to hold in memory at a time; the rest goes through files"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.text import tokens

    how = {"lower_case": not arguments.cased, "lines": arguments.lines, "memory_bytes": arguments.memory_mb << 20}
    tokens.tokenize(arguments.articles, arguments.vocabulary, arguments.output, **how)


if __name__ == "__main__":
    command_line(main, single=True)
