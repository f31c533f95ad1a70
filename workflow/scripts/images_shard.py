"""Write one shard of pictures and its index.

source: a folder, or `sample`
output: <split>_<number>.tar; the index is beside it
"""

from pathlib import Path
from typing import Literal

from throughline.command import run


def main(listing: Path, source: str, damaged: Literal["refuse", "skip"], output: Path) -> None:
    from throughline.images import making

    skipped = making.make(listing, source, damaged == "skip", output)
    if skipped:
        print(f"{output.name}: {skipped:,} damaged pictures left out")


if __name__ == "__main__":
    run(main, single=True)
