"""Measure one training run: `run_training.py --spec JSON --manifest M --record R.json --log R.log`."""

import argparse
import shlex
import sys
from pathlib import Path

from pydantic import ValidationError

from throughline import recipes
from throughline.files import UserError, command_line
from throughline.launch import launch, nodes
from throughline.launch.job import Job, is_strict
from throughline.study.runs import RunSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the run specification as JSON; missing keys have their defaults")
    parser.add_argument("--manifest", type=Path, help="manifest.json of the shards (not for synthetic data)")
    parser.add_argument("--record", type=Path, required=True, help="the record that is written")
    parser.add_argument("--log", type=Path, required=True, help="the log; it is kept even if the run fails")
    parser.add_argument("--python", default=sys.executable, help="the Python that runs the workers (default: this one)")
    parser.add_argument(
        "--environment", dest="python", type=recipes.python_of, help="the workers' environment, by its name"
    )
    parser.add_argument("--repair", help="command that an error names if a shard is missing or changed")
    parser.add_argument("--hang-after", type=float, help="seconds without a step after which a run counts as hung")
    parser.add_argument("--hosts", nargs="*", help="names of hosts behind ssh (default: those in THROUGHLINE_HOSTS)")
    parser.add_argument(
        "--strict", action="store_true", help="treat warnings that are found before the start as errors"
    )
    arguments = parser.parse_args()
    try:
        spec = RunSpec.model_validate_json(arguments.spec)
    except ValidationError as error:
        raise UserError("--spec is not a run specification", why=str(error)) from None
    launch.run(
        Job(
            spec=spec,
            record=arguments.record,
            log=arguments.log,
            manifest=arguments.manifest,
            python=arguments.python,
            repair=arguments.repair,
            hang_after_s=arguments.hang_after,
            strict=arguments.strict or is_strict(spec.benchmark),
            hosts=arguments.hosts or nodes.configured(spec.benchmark),
            command="PYTHONPATH=src " + shlex.join(["python", *(_relative(word) for word in sys.argv)]),
        )
    )


def _relative(word: str) -> str:
    """Return `word`. If it is an absolute path below the working directory, make it relative to that directory."""
    path = Path(word)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


if __name__ == "__main__":
    command_line(main)
