"""Plot throughput, speedup and precisions from the summaries of one benchmark, as SVG and PNG.

summaries: bz<b>_<precision>.json of the benchmark
output_dir: folder: bz<b>_<precision>_{throughput,speedup,split}.{svg,png} and precisions.{svg,png}
extras: summaries of noexchange and synthetic
"""

from collections.abc import Sequence
from pathlib import Path

from throughline.command import run


def main(summaries: list[Path], /, output_dir: Path, extras: Sequence[Path] = ()) -> None:
    from throughline.records import read_summary
    from throughline.report.analysis import cells
    from throughline.report.topic import Scope
    from throughline.report.topics import write_plots

    read = [read_summary(path) for path in (*summaries, *extras)]
    groups = cells.groups(read)
    write_plots(Scope([group for group in groups if group.benchmark == read[0].benchmark], groups), output_dir)


if __name__ == "__main__":
    run(main)
