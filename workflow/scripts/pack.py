"""Pack the results of this configuration into one archive, which `throughline check` can check.

output: the archive
report: results/report.html
made: what the summaries of each benchmark were made with, as JSON
manifests: manifests of the data
imports: imported.json of the imports
acceptance: results/acceptance.json, if there is one
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(
    output: Path,
    report: Path,
    made: dict[str, Any],
    manifests: Sequence[Path] = (),
    imports: Sequence[Path] = (),
    acceptance: Path | None = None,
) -> None:
    from throughline.archive import pack

    pack.write(output, report, manifests, made, imports, acceptance)
