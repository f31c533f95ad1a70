"""Write a file of synthetic clicks in Criteo's format.

values: number of different categories
"""

from pathlib import Path

from throughline.command import run


def main(part: int, rows: int, values: int, output: Path) -> None:
    from throughline.clicks import synthetic_logs

    synthetic_logs.write(output, part, rows, values)


if __name__ == "__main__":
    run(main, single=True)
