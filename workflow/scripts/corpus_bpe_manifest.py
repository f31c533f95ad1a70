"""Write the manifest of all verified shards of GPT-2's tokens."""

import argparse
import json
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True, help="the corpus's name")
    parser.add_argument("--verified", type=Path, required=True, nargs="+", help="results of all verifications")
    parser.add_argument("--parameters", type=json.loads, required=True, help="JSON, recorded and digested")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.bpe import manifest

    manifest.merge(arguments.corpus, arguments.verified, arguments.parameters, arguments.output)


if __name__ == "__main__":
    command_line(main, single=True)
