"""Compare the curve of a long run with the expected curve.

It writes the verdict, results/<benchmark>/convergence_<...>.json, and its plot.
"""

import argparse
from pathlib import Path

from throughline.checks import convergence_check
from throughline.files import command_line, write_json
from throughline.records import read_curve
from throughline.report.render.topics import checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curve", type=Path, help="curve.json")
    parser.add_argument(
        "--tolerance", type=float, required=True, help="how much worse than the expected curve still passes"
    )
    parser.add_argument("--against", type=Path, help="CSV file with the stated curve")
    parser.add_argument("--output", type=Path, required=True, help="the verdict; .svg and .png go beside it")
    arguments = parser.parse_args()
    curve = read_curve(arguments.curve)
    verdict = convergence_check.judge(curve, arguments.against, arguments.tolerance)
    checks.write_convergence(verdict, curve, arguments.output)
    write_json(arguments.output, verdict.model_dump(by_alias=True, mode="json"))


if __name__ == "__main__":
    command_line(main)
