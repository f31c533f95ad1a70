"""Make results/report.html from summaries and the other results under results/: one file that needs no other file.

output: the page
results: folder to look for other benchmarks in
summaries: summaries of this configuration
manifests: manifests of the corpora
imports: imported.json of the imports
archives: compare.json, if the configuration names archives
predictions: predictions.json of the benchmarks that have one
expected: the cells that were asked for: a JSON list of benchmark, batch, precision, frameworks, topologies, repeats
"""

import gc
from collections.abc import Sequence
from pathlib import Path


def main(
    output: Path,
    results: Path = Path("results"),
    summaries: Sequence[Path] = (),
    manifests: Sequence[Path] = (),
    imports: Sequence[Path] = (),
    archives: Sequence[Path] = (),
    predictions: Sequence[Path] = (),
    expected: str = "[]",
) -> None:
    gc.disable()  # most objects live until the end; looking for garbage would take 15 % more
    from throughline.files import write_text
    from throughline.report.analysis import cells
    from throughline.report.render import page

    found = page.collect(results, summaries, imports, archives, predictions)
    write_text(output, page.render(found, manifests, cells.read_asked(expected), output))
