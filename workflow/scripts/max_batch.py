"""Search for the largest batch per device that fits, or for the most classes, in each framework.

It writes results/<benchmark>/max_<quantity>_<precision>.json.
"""

import argparse
from pathlib import Path

from throughline import recipes, records
from throughline.checks import max_batch
from throughline.files import command_line
from throughline.launch import lock, nodes
from throughline.study.runs import read_specs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", required=True, help="run specifications as a JSON list, one per framework")
    parser.add_argument(
        "--quantity",
        default=max_batch.BATCH,
        help="the batch, or the parameter of the model, whose largest value is searched for",
    )
    parser.add_argument("--manifest", type=Path, help="manifest.json of the shards (not for synthetic data)")
    parser.add_argument(
        "--environment", action="append", default=[], metavar="FRAMEWORK=NAME", help="the workers' environment"
    )
    parser.add_argument("--output", type=Path, required=True, help="the result; records and logs of tries go beside it")
    arguments = parser.parse_args()
    specs = read_specs(arguments.specs)
    pairs = (pair.split("=", 1) for pair in arguments.environment)
    pythons = {framework: recipes.python_of(name) for framework, name in pairs}
    hosts, folder = nodes.configured(specs[0].benchmark), arguments.output.with_suffix("")
    with lock.record(arguments.output):
        result = max_batch.find(specs, arguments.manifest, pythons, folder, hosts, arguments.quantity)
        records.write(records.MaxBatch, result, arguments.output)


if __name__ == "__main__":
    command_line(main)
