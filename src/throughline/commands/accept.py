"""Say whether a fleet of nodes is fit, for a prolog or a nightly job.

The exit status is 0 if it is fit, 1 if a device, node or link is slow or a figure is below what is expected, and 2 if
not everything was measured that the verdict needs, or if there is no verdict to read.

file: results/acceptance.json, which `snakemake accept` makes
"""

import sys
from pathlib import Path


def main(file: Path = Path("results/acceptance.json"), /) -> int:
    from throughline.acceptance import verdict
    from throughline.files import UserError
    from throughline.records import read_acceptance
    from throughline.study.acceptance import LOCAL

    try:
        accepted = read_acceptance(file)
    except (UserError, OSError, RecursionError) as error:  # not 1, because nothing is known to be slow
        print(f"error: {error}", file=sys.stderr)
        return verdict.STATUS["not measured"]
    for line in verdict.lines(accepted):
        print(line)
    if accepted.missing:
        print("Next: bring back what is away, mend what failed, and call snakemake accept again in the same way.")
        print("It measures only what is missing.")
    names = file.with_name(Path(LOCAL).name)
    if names.exists():
        print(f"The names of the nodes are in {names}.")
    return verdict.status(accepted)
