"""Make results/report.html from summaries and the other results under results/: one file that needs no other file."""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.report.analysis import cells
from throughline.report.render import page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder to look for other benchmarks in")
    parser.add_argument("--summaries", nargs="*", type=Path, default=[], help="summaries of this configuration")
    parser.add_argument("--manifests", nargs="*", type=Path, default=[], help="manifests of the corpora")
    parser.add_argument("--imports", nargs="*", type=Path, default=[], help="imported.json of the imports")
    parser.add_argument(
        "--expected",
        default="[]",
        metavar="JSON",
        help="the cells that were asked for: a list of benchmark, batch, precision, frameworks, topologies, repeats",
    )
    parser.add_argument("--output", type=Path, required=True, help="the page")
    arguments = parser.parse_args()
    expected = cells.read_asked(arguments.expected)
    page.write(
        arguments.results, arguments.summaries, arguments.manifests, expected, arguments.output, arguments.imports
    )


if __name__ == "__main__":
    command_line(main)
