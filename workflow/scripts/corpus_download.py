"""Download a dump by its name and date: checked, resumed where an earlier download stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline.corpus import published
from throughline.corpus.fetch import Client
from throughline.files import command_line


def main() -> None:
    """A dump's files, and the listing that names them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", help="such as enwiki-20261101; left out, the output's name without .json")
    parser.add_argument("--contact", help="an e-mail or web address; every request carries it")
    parser.add_argument("--mirror", action="append", default=[], help="asked before the official host; may be repeated")
    parser.add_argument("--official", default=published.OFFICIAL, help="asked last (default: %(default)s)")
    parser.add_argument("--timeout-s", type=float, default=60, help="seconds without a byte that end a connection")
    parser.add_argument("--tries", type=int, default=5, help="failures in a row after which a host is given up")
    parser.add_argument("--output", type=Path, required=True, help="the listing; the files come beside it")
    arguments = parser.parse_args()
    client = Client(arguments.contact, tries=arguments.tries, timeout_s=arguments.timeout_s)
    name = arguments.name or arguments.output.stem
    published.download(name, arguments.output, client, arguments.mirror, arguments.official)


if __name__ == "__main__":
    command_line(main)
