"""Write the manifest of all verified shards of one sequence length."""

import argparse
import json
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True, help="the corpus's name")
    parser.add_argument("--verified", type=Path, required=True, nargs="+", help="results of all verifications")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--parameters", type=json.loads, required=True, help="JSON, recorded and digested")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.shards import manifest
    from throughline.corpus.text import vocabulary

    words = vocabulary.read(arguments.vocabulary)
    manifest.merge(arguments.corpus, arguments.verified, words, arguments.parameters, arguments.output)


if __name__ == "__main__":
    command_line(main, single=True)
