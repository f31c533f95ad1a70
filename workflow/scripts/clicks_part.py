"""Parse one log of clicks.

malformed_at_most: largest allowed share of malformed lines
"""

from pathlib import Path

from throughline.command import run


def main(source: Path, part: int, shards: int, malformed_at_most: float, output: Path) -> None:
    from throughline.clicks import making

    lines, malformed = making.parse(source, part, shards, malformed_at_most, output)
    print(f"{source.name}: {lines:,} lines, {malformed:,} of them malformed and left out")


if __name__ == "__main__":
    run(main, single=True)
