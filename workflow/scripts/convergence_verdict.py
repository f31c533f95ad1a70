"""Compare the curve of a long run with the expected curve.

It writes the verdict, results/<benchmark>/convergence_<...>.json, and its plot.

curve: curve.json
tolerance: how much worse than the expected curve still passes
output: the verdict; .svg and .png go beside it
against: CSV file with the stated curve
"""

from pathlib import Path

from throughline.files import write_json


def main(curve: Path, /, tolerance: float, output: Path, against: Path | None = None) -> None:
    from throughline.checks import convergence_check
    from throughline.records import read_curve
    from throughline.report.topics import checks

    found = read_curve(curve)
    verdict = convergence_check.judge(found, against, tolerance)
    checks.write_convergence(verdict, found, output)
    write_json(output, verdict.model_dump(by_alias=True, mode="json"))
