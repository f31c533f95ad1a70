"""Copy the tokenizer that the configuration names into the corpus's folder.

path: a tokenizer.json
sha256: the SHA-256 that it had when the configuration was read
"""

from pathlib import Path

from throughline.command import run


def main(path: Path, sha256: str, output: Path) -> None:
    from throughline.corpus.text import own_tokenizer

    own_tokenizer.copy_checked(path, sha256, output)


if __name__ == "__main__":
    run(main, single=True)
