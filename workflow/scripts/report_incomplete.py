"""Make results/report-incomplete.html from what is measured so far, if a workflow did not finish.

expected: the cells that were asked for, as JSON
output: the page
results: folder of the records
"""

from pathlib import Path

from throughline.command import run


def main(expected: str, output: Path, results: Path = Path("results")) -> None:
    from throughline.report.analysis import cells
    from throughline.report.render import page

    page.write_incomplete(results, cells.read_asked(expected), output)


if __name__ == "__main__":
    run(main)
