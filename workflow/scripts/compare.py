"""Compare the present results with archives: cell by cell, and the acceptance node by node.

output: compare.json
page: the same to look at
table: the same as CSV
summaries: summaries of this configuration
archives: archives that `snakemake pack` has made
places: the places of the acceptance as CSV
acceptance: results/acceptance.json, if there is one
"""

from collections.abc import Sequence
from pathlib import Path

from throughline.command import run


def main(
    output: Path,
    page: Path,
    table: Path,
    places: Path,
    summaries: Sequence[Path] = (),
    archives: Sequence[Path] = (),
    acceptance: Path | None = None,
) -> None:
    from throughline.archive import compare
    from throughline.report.render import archives as shown
    from throughline.report.render import compared_places
    from throughline.report.render.page import write_comparison

    compare.compare(summaries, archives, output, acceptance)
    shown.write(output, table)
    compared_places.write(output, places)
    write_comparison(output, page)


if __name__ == "__main__":
    run(main)
