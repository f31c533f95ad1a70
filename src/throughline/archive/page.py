"""The page of an archive, results/report.html: it shows what is in the archive, and nothing else.

So the check can draw it again. The report of the working directory may also have other results, machines and archives.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

from throughline import records
from throughline.archive.contents import Made
from throughline.report.render import page
from throughline.report.topics import convergence

NAME = "results/report.html"
LIBRARY: str = matplotlib.__version__
"""The version of what draws the plots. Another version may draw the same plot otherwise."""
OF_MACHINE = re.compile(r'<section id="repeat">.*?</section>|<code>.*?</code>', re.S)
"""Commands, which name the files of the machine that made the page."""
PLOT = re.compile(r"<svg\b.*?</svg>", re.S)


def drawn(folder: Path, benchmarks: Mapping[str, Made], names: Iterable[str]) -> str:
    """Return the page of an archive. folder: where its files lie; names: those of all files in it."""
    there = sorted(names)

    def read(pattern: str, reader: Callable[[Path], Any]) -> list[Any]:
        inner = (name for name in there if fnmatch.fnmatch(name, pattern) and name.count("/") == pattern.count("/"))
        return [reader(folder / name) for name in inner]

    summaries = [Path(name) for made in benchmarks.values() for name in made.summaries]
    predicted = [folder / f"results/{name}/predictions.json" for name, made in benchmarks.items() if made.predict]
    results = page.Results(
        present={folder / name: records.read_summary(folder / name) for name in summaries},
        largest=read("results/*/max_*_*.json", records.read_max_batch),
        checks=read("results/*/convergence_*.json", convergence.read),
        imports=read("results/*/imported.json", records.read_imported),
        predictions=[records.read_predictions(path) for path in predicted],
    )
    manifests = [folder / name for name in there if name.startswith("data/")]
    return page.render(results, manifests, None, folder / NAME)


def fixed(text: str, with_plots: bool) -> str:
    """Return a page without what depends on the machine that has made it. with_plots: the plots do not."""
    text = OF_MACHINE.sub("", text)
    return text if with_plots else PLOT.sub("", text)
