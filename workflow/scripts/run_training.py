"""Measure one training run: `run_training.py --spec JSON --manifest M --record R.json --log R.log`.

spec: the run specification as JSON; missing keys have their defaults
record: the record that is written
log: the log; it is kept even if the run fails
manifest: manifest.json of the shards (not for synthetic data)
python: the Python that runs the workers (default: this one)
environment: the workers' environment, by its name
hang_after: seconds without a step after which a run counts as hung
hosts: names of hosts behind ssh (default: those of the workflow's configuration)
strict: treat warnings that are found before the start as errors
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from throughline.files import UserError, from_here
from throughline.processes import START


def main(
    spec: str,
    record: Path,
    log: Path,
    manifest: Path | None = None,
    python: str = sys.executable,
    environment: str | None = None,
    hang_after: float | None = None,
    hosts: Sequence[str] = (),
    strict: bool = False,
) -> None:
    from pydantic import ValidationError

    from throughline.installation import recipe
    from throughline.launch import launcher, nodes
    from throughline.launch.request import RunRequest, is_strict
    from throughline.study.runs import read_spec

    try:
        asked = read_spec(spec)
    except ValidationError as error:
        raise UserError("--spec is not a run specification", why=str(error)) from None
    words = [from_here(Path(word)) if word.startswith("/") else word for word in (str(START), *sys.argv)]
    launcher.run(
        RunRequest(
            spec=asked,
            record=record,
            log=log,
            manifest=manifest,
            python=recipe.python_of(environment) if environment else python,
            hang_after_s=hang_after,
            strict=strict or is_strict(asked.benchmark),
            hosts=hosts or nodes.configured(asked.benchmark),
            command=shlex.join(["python", *words]),
        )
    )
