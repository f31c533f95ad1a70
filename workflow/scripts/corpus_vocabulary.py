"""Write a corpus's vocabulary: the published bert-base-uncased, or a file that is checked by its SHA-256."""

import argparse
import os
from pathlib import Path

from throughline.corpus.source.fetch import Client
from throughline.corpus.text import vocabulary
from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--name", choices=["bert-base-uncased"], help="a vocabulary that comes with the packages")
    source.add_argument("--path", type=Path, help="a file of one entry per line")
    source.add_argument("--url", help="where the vocabulary is published")
    parser.add_argument("--sha256", help="the SHA-256 that the file must have")
    parser.add_argument("--cased", action="store_true", help="text keeps its capitals and accents")
    parser.add_argument(
        "--contact",
        default=os.environ.get("THROUGHLINE_CONTACT") or None,
        help="an e-mail or web address that a request carries (default: $THROUGHLINE_CONTACT)",
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.name:
        vocabulary.write_bert_base_uncased(arguments.output)
    elif not arguments.sha256:
        parser.error("--path and --url need --sha256")
    elif arguments.path:
        vocabulary.copy_checked(arguments.path, arguments.sha256, arguments.output, not arguments.cased)
    else:
        client = Client(arguments.contact)
        vocabulary.download(arguments.url, arguments.sha256, client, arguments.output, not arguments.cased)


if __name__ == "__main__":
    command_line(main)
