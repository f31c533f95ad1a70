"""Write the tables of every topic from the summaries of one benchmark, as CSV and Markdown.

summaries: bz<b>_<precision>.json of the benchmark
output_dir: folder: {throughput,figures,memory,utilization,flops,cost}.{csv,md}, throughput.tex, comparisons.csv, ...
extras: other summaries, with which the benchmark is compared
predictions: predictions.json of the benchmark, if there is one
"""

from collections.abc import Sequence
from pathlib import Path


def main(
    summaries: list[Path], /, output_dir: Path, extras: Sequence[Path] = (), predictions: Sequence[Path] = ()
) -> None:
    from throughline.comparables import exports
    from throughline.records import read_predictions, read_summary
    from throughline.report.analysis import cells
    from throughline.report.topic import Scope
    from throughline.report.topics import write_tables

    read = [read_summary(path) for path in (*summaries, *extras)]
    groups = cells.groups(read)
    own = [group for group in groups if group.benchmark == read[0].benchmark]
    predicted = next(map(read_predictions, predictions), None)
    write_tables(Scope(own, groups, predictions=predicted), output_dir)
    exports.write([group.summary for group in own if group.summary], output_dir)
