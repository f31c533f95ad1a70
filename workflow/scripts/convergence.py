"""Do the long run of a convergence check, or continue it where an earlier call was interrupted.

It writes results/<benchmark>/convergence_<...>/curve.json.
"""

import argparse
import sys
from pathlib import Path

from throughline import recipes
from throughline.checks import convergence_check
from throughline.files import command_line
from throughline.launch import nodes
from throughline.study.benchmark import Convergence
from throughline.study.runs import RunSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the run specification as JSON")
    parser.add_argument("--settings", required=True, help="the benchmark's `convergence` as JSON")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the shards")
    parser.add_argument("--python", default=sys.executable, help="the Python that runs the workers (default: this one)")
    parser.add_argument(
        "--environment", dest="python", type=recipes.python_of, help="the workers' environment, by its name"
    )
    parser.add_argument("--log", type=Path, required=True, help="the log; it is kept even if the run fails")
    parser.add_argument(
        "--output", type=Path, required=True, help="the curve; checkpoints lie beside it during the run"
    )
    parser.add_argument(
        "--begin", type=Path, help="the curve of an earlier check; this one begins with its last weights"
    )
    arguments = parser.parse_args()
    spec = RunSpec.model_validate_json(arguments.spec)
    settings = Convergence.model_validate_json(arguments.settings)
    manifest, output, log, hosts = arguments.manifest, arguments.output, arguments.log, nodes.configured(spec.benchmark)
    convergence_check.run(spec, settings, manifest, output, log, arguments.python, hosts, arguments.begin)


if __name__ == "__main__":
    command_line(main)
