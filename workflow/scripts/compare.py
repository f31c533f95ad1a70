"""Compare the present results with archives and folders: cell by cell, with prices, and the acceptance node by node.

output: compare.json
page: the same to look at
table: the same as CSV
summaries: summaries of this configuration
against: archives that `snakemake pack` has made, and folders of results
machines: what the cells cost on each machine, as CSV
places: the places of the acceptance as CSV
terms: the prices of devices as JSON, such as {"prices": {"V100": {"per_hour": 5.3, "currency": "CNY"}}}
acceptance: results/acceptance.json, if there is one
"""

from collections.abc import Sequence
from pathlib import Path


def main(
    output: Path,
    page: Path,
    table: Path,
    machines: Path,
    places: Path,
    summaries: Sequence[Path] = (),
    against: Sequence[Path] = (),
    terms: str = "{}",
    acceptance: Path | None = None,
) -> None:
    from throughline.archive import compare
    from throughline.report.analysis.summary import read_terms
    from throughline.report.render import compared
    from throughline.report.render.page import write_comparison

    compare.compare(summaries, against, output, acceptance, read_terms(terms).prices)
    compared.write(output, table, machines, places)
    write_comparison(output, page)
