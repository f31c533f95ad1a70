"""Encode the articles of one part as GPT-2's tokens."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--articles", type=Path, required=True, help="articles as JSON lines")
    parser.add_argument("--vocabulary", type=Path, required=True, help="folder of encoder.json and vocab.bpe")
    parser.add_argument(
        "--memory-mb", type=int, default=256, help="data to hold in memory at a time; the rest goes through files"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.bpe import making

    made = arguments.articles, arguments.vocabulary, arguments.output
    making.tokenize(*made, memory_bytes=arguments.memory_mb << 20)


if __name__ == "__main__":
    command_line(main, single=True)
