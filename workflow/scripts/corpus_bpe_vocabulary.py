"""Write GPT-2's published vocabulary. It is rebuilt from an installed package and checked by its SHA-256.

output: a folder for encoder.json and vocab.bpe
"""

from pathlib import Path

from throughline.command import run


def main(output: Path) -> None:
    from throughline.corpus.bpe import vocabulary

    vocabulary.build(output)


if __name__ == "__main__":
    run(main, single=True)
