"""Plot throughput, speedup and precisions from the summaries of one benchmark, as SVG and PNG.

summaries: bz<b>_<precision>.json of the benchmark
output_dir: folder: bz<b>_<precision>_{throughput,speedup,split}.{svg,png} and precisions.{svg,png}
extras: summaries of no_gradient_sync and synthetic
predictions: predictions.json of the benchmark, if there is one
"""

from collections.abc import Sequence
from pathlib import Path


def main(
    summaries: list[Path], /, output_dir: Path, extras: Sequence[Path] = (), predictions: Sequence[Path] = ()
) -> None:
    from throughline.records import read_predictions, read_summary
    from throughline.report.analysis import cells
    from throughline.report.topic import Scope
    from throughline.report.topics import write_plots

    read = [read_summary(path) for path in (*summaries, *extras)]
    groups = cells.groups(read)
    own = [group for group in groups if group.benchmark == read[0].benchmark]
    predicted = next(map(read_predictions, predictions), None)
    write_plots(Scope(own, groups, predictions=predicted), output_dir)
