"""Check one shard of pictures: decode each of them once, and write its digests.

side: pixels of every picture in height and width
"""

from pathlib import Path
from typing import Literal

from throughline import files
from throughline.command import run


def main(listing: Path, shard: Path, damaged: Literal["refuse", "skip"], output: Path, side: int | None = None) -> None:
    from throughline.images import verification

    result = verification.verify(shard, listing, damaged == "skip", side)
    print(f"{result['file']}: {result['rows']:,} pictures decoded")
    files.write_json(output, result)


if __name__ == "__main__":
    run(main, single=True)
