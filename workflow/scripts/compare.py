"""Compare the present results with archives, cell by cell.

output: compare.json
page: the same to look at
table: the same as CSV
summaries: summaries of this configuration
archives: archives that `snakemake pack` has made
"""

from pathlib import Path

from throughline.command import run


def main(output: Path, page: Path, table: Path, summaries: list[Path], archives: list[Path]) -> None:
    from throughline.archive import compare
    from throughline.report.render import archives as shown
    from throughline.report.render.page import write_comparison

    compare.compare(summaries, archives, output)
    shown.write(output, table)
    write_comparison(output, page)


if __name__ == "__main__":
    run(main)
