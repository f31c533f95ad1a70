"""Write the manifest of all verified shards of one sequence length.

corpus: the corpus's name
verified: results of all verifications
parameters: JSON, recorded and digested
"""

from pathlib import Path
from typing import Any

from throughline.command import run


def main(corpus: str, verified: list[Path], vocabulary: Path, parameters: dict[str, Any], output: Path) -> None:
    from throughline.corpus.shards import manifest
    from throughline.corpus.text.vocabulary import read

    manifest.merge(corpus, verified, read(vocabulary), parameters, output)


if __name__ == "__main__":
    run(main, single=True)
