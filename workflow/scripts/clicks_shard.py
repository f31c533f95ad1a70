"""Gather one shard of clicks from all parts.

shard: its number, training shards first
"""

from pathlib import Path

from throughline.command import run


def main(parts: list[Path], shard: int, output: Path) -> None:
    from throughline.clicks import making

    rows = making.gather(parts, shard, output)
    print(f"{output.name}: {rows:,} rows")


if __name__ == "__main__":
    run(main, single=True)
