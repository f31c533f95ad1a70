"""Encode the articles of one part as GPT-2's tokens.

articles: articles as JSON lines
vocabulary: folder of encoder.json and vocab.bpe, or the user's own tokenizer.json
memory_mb: data to hold in memory at a time; the rest goes through files
"""

from pathlib import Path

from throughline.command import run


def main(articles: Path, vocabulary: Path, output: Path, memory_mb: int = 256) -> None:
    from throughline.corpus.bpe import making

    making.tokenize(articles, vocabulary, output, memory_bytes=memory_mb << 20)


if __name__ == "__main__":
    run(main, single=True)
