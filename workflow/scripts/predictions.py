"""Predict the throughput of topologies that were not measured, from the summaries of one benchmark.

summaries: bz<b>_<precision>.json of the benchmark
output: predictions.json
asked: the topologies to predict, as JSON
extras: summaries of no_gradient_sync and synthetic
"""

from collections.abc import Sequence
from pathlib import Path


def main(summaries: list[Path], /, output: Path, asked: str, extras: Sequence[Path] = ()) -> None:
    from throughline.files import write_json
    from throughline.report.analysis import predictions

    own, derived = ({str(path): path for path in paths} for paths in (summaries, extras))
    made = predictions.derive(own, derived, predictions.read_asked(asked))
    write_json(output, made.model_dump(by_alias=True))
    print("\n".join(predictions.lines(made)))
