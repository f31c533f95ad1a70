"""Write the manifest of all verified shards of GPT-2's tokens.

corpus: the corpus's name
verified: results of all verifications
parameters: JSON, recorded and digested
"""

from pathlib import Path
from typing import Any

from throughline.command import run


def main(corpus: str, verified: list[Path], parameters: dict[str, Any], output: Path) -> None:
    from throughline.corpus.bpe import manifest

    manifest.merge(corpus, verified, parameters, output)


if __name__ == "__main__":
    run(main, single=True)
