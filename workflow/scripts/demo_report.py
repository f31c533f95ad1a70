"""Make docs/demo-report.html from the records in docs/demo: a report to look at without running anything.

kept: folder of the kept records
keep: first keep the records of these benchmarks (folders)
output: the page
"""

from collections.abc import Sequence
from pathlib import Path


def main(
    kept: Path = Path("docs/demo"), keep: Sequence[Path] = (), output: Path = Path("docs/demo-report.html")
) -> None:
    from throughline.report import demo

    if keep:
        demo.keep(keep, kept)
    demo.write(kept, output)
