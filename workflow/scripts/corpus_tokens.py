"""Tokenize the articles of one part.

articles: articles as JSON lines
cased: the text keeps its capitals and accents
lines: every line of an article is a sentence already
tokenizer: the user's own tokenizer.json; the text is encoded by it
memory_mb: data to hold in memory at a time; the rest goes through files
"""

from pathlib import Path
from typing import Any

from throughline.command import run


def main(
    articles: Path,
    vocabulary: Path,
    output: Path,
    cased: bool = False,
    lines: bool = False,
    tokenizer: Path | None = None,
    memory_mb: int = 256,
) -> None:
    from throughline.corpus.text import tokens

    memory_bytes = memory_mb << 20
    how: dict[str, Any] = {"lower_case": not cased, "lines": lines, "tokenizer": tokenizer}
    tokens.tokenize(articles, vocabulary, output, **how, memory_bytes=memory_bytes)


if __name__ == "__main__":
    run(main, single=True)
