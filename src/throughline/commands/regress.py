"""Say whether something became slower than in the archives of a comparison, for a CI.

The exit status is 1 if a cell is slower by more than the noise and by more than --by, 0 if none is, and 2 if that
cannot be told of at least one cell.

file: results/compare.json, which `snakemake compare` makes
by: what counts as slower, such as 2%
"""

from pathlib import Path


def main(file: Path, /, by: str = "2%") -> int:
    from throughline.archive import regress
    from throughline.records import read_compared

    judged = regress.judge(read_compared(file), regress.share(by))
    for line in regress.lines(judged, by):
        print(line)
    return regress.status(judged)
