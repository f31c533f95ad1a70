"""Download a dump by its name and date, and check it. A download that stopped is continued.

output: the listing; the files come beside it
name: such as enwiki-20261101 (default: the output's name without .json)
contact: an e-mail or web address; every request carries it (default: $THROUGHLINE_CONTACT)
mirror: asked before the official host; may be repeated (default: the words of $THROUGHLINE_MIRRORS)
official: asked last (default: $THROUGHLINE_OFFICIAL, or Wikimedia's own host)
results: where finished runs say which dump a name without a date has been
timeout_s: seconds without a byte that end a connection
tries: failures in a row after which a host is given up
"""

import os
from collections.abc import Sequence
from pathlib import Path

from throughline.command import run


def main(
    output: Path,
    name: str | None = None,
    contact: str | None = os.environ.get("THROUGHLINE_CONTACT") or None,
    mirror: Sequence[str] = (),
    official: str | None = os.environ.get("THROUGHLINE_OFFICIAL"),
    timeout_s: float = 60,
    tries: int = 5,
    results: Path = Path("results"),
) -> None:
    from throughline.corpus.source import published_dumps
    from throughline.corpus.source.fetch import Client
    from throughline.records.glance import dumps_read

    client = Client(contact, tries=tries, timeout_s=timeout_s)
    mirrors = mirror or os.environ.get("THROUGHLINE_MIRRORS", "").split()
    host = published_dumps.OFFICIAL if official is None else official
    name = name or output.stem
    measured = dumps_read(name, output.parent.parent.name, results)
    published_dumps.download(name, output, client, mirrors, host, measured)


if __name__ == "__main__":
    run(main)
