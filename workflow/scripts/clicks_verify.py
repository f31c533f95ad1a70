"""Check one shard of clicks against the parts, and write its digests.

number: its number, training shards first
"""

from pathlib import Path

from throughline import files
from throughline.command import run


def main(shard: Path, parts: list[Path], number: int, output: Path) -> None:
    from throughline.clicks import verification

    result = verification.verify(shard, parts, number)
    print(f"{result['file']}: {result['rows']:,} rows, {result['clicks']:,} clicks")
    files.write_json(output, result)


if __name__ == "__main__":
    run(main, single=True)
