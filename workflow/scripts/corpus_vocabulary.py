"""Write a corpus's vocabulary: the published bert-base-uncased, or a file proven by its sha256."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline.corpus import vocabulary
from throughline.files import UserError, command_line


def main() -> None:
    """One vocabulary file."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--name", choices=["bert-base-uncased"], help="a vocabulary that comes with the packages")
    source.add_argument("--path", type=Path, help="a file of one entry per line")
    source.add_argument("--url", help="where the vocabulary is published")
    parser.add_argument("--sha256", help="what --path has to be")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.url:
        raise UserError(
            "a vocabulary is not downloaded yet",
            why=f"corpus.vocabulary names {arguments.url}",
            next_step="download the file yourself and set corpus.vocabulary to {path: FILE, sha256: ITS_SHA256}",
        )
    if arguments.name:
        vocabulary.write_bert_base_uncased(arguments.output)
    elif arguments.sha256:
        vocabulary.copy_checked(arguments.path, arguments.sha256, arguments.output)
    else:
        parser.error("--path needs --sha256")


if __name__ == "__main__":
    command_line(main)
