"""Say whether something became slower than in the archives of a comparison, for a CI.

The exit status is 1 if a cell is slower by more than the noise and by more than --by. It is 2 if that cannot be told of
at least one cell, if a cell of an archive is gone, or if there is no comparison to read. Otherwise it is 0.

file: results/compare.json, which `snakemake compare` makes
by: what counts as slower, such as 2%
"""

import sys
import zipfile
from pathlib import Path


def main(file: Path, /, by: str = "2%") -> int:
    from throughline.archive import regress
    from throughline.files import UserError
    from throughline.records import read_compared

    try:
        if zipfile.is_zipfile(file):
            raise UserError(
                f"{file} is an archive, and regress reads a comparison, results/compare.json",
                next_step=f"snakemake compare --config 'compare={{against: [{file}]}}', then "
                "throughline regress results/compare.json",
            )
        judged = regress.judge(read_compared(file), regress.share(by))
    except (UserError, OSError, RecursionError) as error:  # not 1, because nothing is known to be slower
        print(f"error: {error}", file=sys.stderr)
        return regress.STATUS["cannot be told"]
    for line in regress.lines(judged, by):
        print(line)
    return regress.status(judged)
