"""Check whether all frameworks of a benchmark compute the same from the same weights on the same batches.

It writes results/<benchmark>/equivalence.json.
"""

import argparse
from pathlib import Path

from throughline import recipes, records
from throughline.checks import equivalence
from throughline.files import command_line
from throughline.study.runs import read_specs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", required=True, help="run specifications as a JSON list: frameworks x topologies")
    parser.add_argument("--manifest", type=Path, help="manifest.json of the shards (not for synthetic data)")
    parser.add_argument(
        "--environment", action="append", default=[], metavar="FRAMEWORK=NAME", help="the workers' environment"
    )
    parser.add_argument("--output", type=Path, required=True, help="equivalence.json; records and logs go beside it")
    arguments = parser.parse_args()
    specs = read_specs(arguments.specs)
    pairs = (pair.split("=", 1) for pair in arguments.environment)
    pythons = {framework: recipes.python_of(name) for framework, name in pairs}
    result = equivalence.prove(specs, arguments.manifest, pythons, arguments.output.with_suffix(""))
    records.write(records.Equivalence, result, arguments.output)


if __name__ == "__main__":
    command_line(main)
