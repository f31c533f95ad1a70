"""Make results/report-incomplete.html from what is measured so far, if a workflow did not finish."""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.report.analysis import cells
from throughline.report.render import page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the records")
    parser.add_argument("--expected", required=True, metavar="JSON", help="the cells that were asked for")
    parser.add_argument("--output", type=Path, required=True, help="the page")
    arguments = parser.parse_args()
    page.write_incomplete(arguments.results, cells.read_asked(arguments.expected), arguments.output)


if __name__ == "__main__":
    command_line(main)
