"""Check one shard of GPT-2's tokens, whoever made it, and write its digests."""

import argparse
from pathlib import Path

from throughline import files
from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=Path, required=True)
    parser.add_argument("--vocabulary", type=Path, help="folder of encoder.json and vocab.bpe, if we made the shard")
    parser.add_argument("--digest", help="SHA-256 of what decides the shard, if we made it")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.bpe import verification, vocabulary

    if arguments.vocabulary:
        result = verification.verify(arguments.shard, vocabulary.read(arguments.vocabulary), arguments.digest)
        proven = "each is its article's text"
    else:
        result, proven = verification.verify_foreign(arguments.shard), "there is no text to hold them against"
    print(f"{result['file']}: {result['tokens']:,} tokens in {result['documents']:,} documents checked; {proven}")
    files.write_json(arguments.output, result)


if __name__ == "__main__":
    command_line(main, single=True)
