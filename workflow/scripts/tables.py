"""Write the tables of every topic from the summaries of one benchmark, as CSV, Markdown and LaTeX."""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.imports import interchange
from throughline.records import read_summary
from throughline.report.analysis import cells
from throughline.report.render.topics import write_tables
from throughline.report.topics import Scope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("summaries", nargs="+", type=Path, help="bz<b>_<precision>.json of the benchmark")
    parser.add_argument(
        "--extras", nargs="*", default=[], type=Path, help="other summaries, with which the benchmark is compared"
    )
    parser.add_argument("--expected", default="[]", metavar="JSON", help="the cells that were asked for")
    parser.add_argument(
        "--output-dir",
        type=Path,
        required=True,
        help="folder: {throughput,figures,memory,use,work,cost}.{csv,md,tex}, {comparisons,split,pairs,cases}.csv",
    )
    arguments = parser.parse_args()
    summaries = [read_summary(path) for path in (*arguments.summaries, *arguments.extras)]
    groups = cells.groups(summaries, cells.read_asked(arguments.expected))
    own = [group for group in groups if group.benchmark == summaries[0].benchmark]
    write_tables(Scope(own, groups), arguments.output_dir)
    interchange.write([group.summary for group in own if group.summary], arguments.output_dir)


if __name__ == "__main__":
    command_line(main)
