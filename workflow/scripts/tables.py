"""Summaries of one benchmark -> throughput and memory tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.records import read_summary
from throughline.report import cells, tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("summaries", nargs="+", type=Path, help="bz<b>_<precision>.json of the benchmark")
    parser.add_argument("--expected", default="[]", metavar="JSON", help="the cells that were asked for")
    parser.add_argument("--output-dir", type=Path, required=True, help="folder: {throughput,memory}.{csv,md,tex}")
    arguments = parser.parse_args()
    found = [read_summary(path) for path in arguments.summaries]
    tables.write(cells.groups(found, cells.read_asked(arguments.expected)), arguments.output_dir)


if __name__ == "__main__":
    command_line(main)
