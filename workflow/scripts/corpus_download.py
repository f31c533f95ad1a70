"""Download a dump by its name and date, and check it. A download that stopped is continued."""

import argparse
import os
from pathlib import Path

from throughline.corpus.source import published
from throughline.corpus.source.fetch import Client
from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", help="such as enwiki-20261101 (default: the output's name without .json)")
    parser.add_argument(
        "--contact",
        default=os.environ.get("THROUGHLINE_CONTACT") or None,
        help="an e-mail or web address; every request carries it (default: $THROUGHLINE_CONTACT)",
    )
    parser.add_argument(
        "--mirror",
        action="append",
        help="asked before the official host; may be repeated (default: the words of $THROUGHLINE_MIRRORS)",
    )
    parser.add_argument(
        "--official",
        default=os.environ.get("THROUGHLINE_OFFICIAL", published.OFFICIAL),
        help="asked last (default: $THROUGHLINE_OFFICIAL, or %(default)s)",
    )
    parser.add_argument("--timeout-s", type=float, default=60, help="seconds without a byte that end a connection")
    parser.add_argument("--tries", type=int, default=5, help="failures in a row after which a host is given up")
    parser.add_argument("--output", type=Path, required=True, help="the listing; the files come beside it")
    arguments = parser.parse_args()
    client = Client(arguments.contact, tries=arguments.tries, timeout_s=arguments.timeout_s)
    mirrors = arguments.mirror or os.environ.get("THROUGHLINE_MIRRORS", "").split()
    name = arguments.name or arguments.output.stem
    published.download(name, arguments.output, client, mirrors, arguments.official)


if __name__ == "__main__":
    command_line(main)
