"""Extract the text of the articles in one part of the dump, and prove that none is missing.

cut: parts.json
part: counted from 0, over all sources
output: articles as JSON lines
counts: what was counted, as JSON
stall_s: stop when nothing moves for so many seconds
"""

from pathlib import Path
from typing import Literal

from throughline.command import run
from throughline.files import read_json


def main(
    cut: Path,
    part: int,
    output: Path,
    counts: Path,
    extractor: Literal["wikiextractor", "throughline"] = "wikiextractor",
    stall_s: float = 900,
) -> None:
    from throughline.corpus.source import documents, dumps
    from throughline.corpus.text import extraction

    if read_json(cut).get("kind") == documents.KIND:
        extraction.take_over(documents.articles(cut, part), part, output, counts)
    else:
        extraction.extract(dumps.read(cut), part, output, counts, extractor=extractor, stall_s=stall_s)


if __name__ == "__main__":
    run(main, single=True)
