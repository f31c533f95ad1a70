"""Derive every figure of an archive again from its raw values, and list what differs.

The exit status is 0 if everything follows from the raw values, and 1 if something differs.

file: an archive that `snakemake pack` has made
"""

from pathlib import Path


def main(file: Path, /) -> int:
    from throughline.archive import check

    verdict = check.check(file)
    for line in check.lines(verdict, file):
        print(line)
    return 1 if verdict.differences else 0
