"""Summaries of one benchmark -> throughput and memory tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.records import read_summary
from throughline.report.analysis import cells, split
from throughline.report.render import tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("summaries", nargs="+", type=Path, help="bz<b>_<precision>.json of the benchmark")
    parser.add_argument("--extras", nargs="*", default=[], type=Path, help="summaries of noexchange, synthetic and aa")
    parser.add_argument("--expected", default="[]", metavar="JSON", help="the cells that were asked for")
    parser.add_argument(
        "--output-dir",
        type=Path,
        required=True,
        help="folder: {throughput,memory,use,work,cost}.{csv,md,tex}, {comparisons,split}.csv",
    )
    arguments = parser.parse_args()
    found, derived = ([read_summary(path) for path in paths] for paths in (arguments.summaries, arguments.extras))
    groups, extras = cells.groups(found, cells.read_asked(arguments.expected)), cells.groups(derived)
    tables.write(groups, arguments.output_dir)
    tables.write_comparisons(groups, extras, arguments.output_dir)
    split.write_table(groups, extras, arguments.output_dir)


if __name__ == "__main__":
    command_line(main)
