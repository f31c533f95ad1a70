"""Plot throughput, speedup and precisions from the summaries of one benchmark, as SVG and PNG."""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.records import read_summary
from throughline.report.analysis import cells
from throughline.report.render.topics import write_plots
from throughline.report.topics import Scope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("summaries", nargs="+", type=Path, help="bz<b>_<precision>.json of the benchmark")
    parser.add_argument("--extras", nargs="*", default=[], type=Path, help="summaries of noexchange and synthetic")
    parser.add_argument(
        "--output-dir",
        type=Path,
        required=True,
        help="folder: bz<b>_<precision>_{throughput,speedup,split}.{svg,png} and precisions.{svg,png}",
    )
    arguments = parser.parse_args()
    summaries = [read_summary(path) for path in (*arguments.summaries, *arguments.extras)]
    groups = cells.groups(summaries)
    own = [group for group in groups if group.benchmark == summaries[0].benchmark]
    write_plots(Scope(own, groups), arguments.output_dir)


if __name__ == "__main__":
    command_line(main)
