"""Summarize the run records of one benchmark, batch size and precision.

It writes results/<benchmark>/bz<b>_<precision>.json.
"""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.report.analysis import summary
from throughline.study.runs import RunSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, help="run<k>.json of every framework and topology")
    parser.add_argument(
        "--spec", metavar="JSON", help="specification of one of the runs; records that do not fit it are refused"
    )
    parser.add_argument("--asked", type=int, required=True, metavar="N", help="repeats that were asked for per cell")
    parser.add_argument("--remarks", help="text to show under the tables")
    parser.add_argument("--equivalence", type=Path, help="equivalence.json, if the benchmark has one")
    parser.add_argument("--strict", action="store_true", help="fail on warnings instead of writing them down")
    parser.add_argument("--terms", default="{}", metavar="JSON", help="goals, prices and task_samples")
    parser.add_argument("--output", type=Path, required=True, help="the summary")
    arguments = parser.parse_args()
    summary.write(
        arguments.records,
        arguments.output,
        arguments.asked,
        arguments.remarks,
        arguments.strict,
        arguments.equivalence,
        summary.read_terms(arguments.terms),
        RunSpec.model_validate_json(arguments.spec) if arguments.spec else None,
    )


if __name__ == "__main__":
    command_line(main)
