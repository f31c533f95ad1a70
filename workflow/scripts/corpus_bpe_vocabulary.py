"""Write GPT-2's published vocabulary. It is rebuilt from an installed package and checked by its SHA-256."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="a folder for encoder.json and vocab.bpe")
    arguments = parser.parse_args()
    from throughline.corpus.bpe import vocabulary

    vocabulary.build(arguments.output)


if __name__ == "__main__":
    command_line(main, single=True)
