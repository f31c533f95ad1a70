"""Tokenize the articles of one part.

articles: articles as JSON lines
cased: the text keeps its capitals and accents
lines: every line of an article is a sentence already
memory_mb: data to hold in memory at a time; the rest goes through files
"""

from pathlib import Path

from throughline.command import run


def main(
    articles: Path, vocabulary: Path, output: Path, cased: bool = False, lines: bool = False, memory_mb: int = 256
) -> None:
    from throughline.corpus.text import tokens

    memory_bytes = memory_mb << 20
    tokens.tokenize(articles, vocabulary, output, lower_case=not cased, lines=lines, memory_bytes=memory_bytes)


if __name__ == "__main__":
    run(main, single=True)
