"""Check an archive, or a table of published figures, and list what differs or cannot be.

Every figure of an archive is derived again from its raw values. A table has no raw values: its figures have to follow
from each other, and a device has to be able to reach them (docs/how-to/compare.md describes its columns).

The exit status is 0 if nothing is wrong, and 1 otherwise.

file: an archive that `snakemake pack` has made, or a table that ends in .csv
"""

from pathlib import Path


def main(file: Path, /) -> int:
    if file.suffix == ".csv":
        from throughline.comparables import implausible, published

        rows = list(published.read(file))
        doubts = implausible.doubts(rows)
        print("\n".join(implausible.lines(rows, doubts, str(file))))
        return 1 if doubts else 0
    from throughline.archive import check

    verdict = check.check(file)
    for line in check.lines(verdict, file):
        print(line)
    return 1 if verdict.differences else 0
