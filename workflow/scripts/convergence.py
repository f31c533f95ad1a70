"""Do the long run of a convergence check, or continue it where an earlier call was interrupted.

It writes results/<benchmark>/convergence_<...>/curve.json.

spec: the run specification as JSON
settings: the benchmark's `convergence` as JSON
manifest: manifest.json of the shards
log: the log; it is kept even if the run fails
output: the curve; checkpoints lie beside it during the run
begin: the curve of an earlier check; this one begins with its last weights
python: the Python that runs the workers (default: this one)
environment: the workers' environment, by its name
"""

import sys
from pathlib import Path


def main(
    spec: str,
    settings: str,
    manifest: Path,
    log: Path,
    output: Path,
    begin: Path | None = None,
    python: str = sys.executable,
    environment: str | None = None,
) -> None:
    from throughline.checks import convergence_check
    from throughline.installation import recipe
    from throughline.launch import nodes
    from throughline.study.benchmark import Convergence
    from throughline.study.runs import read_spec

    asked, how = read_spec(spec), Convergence.model_validate_json(settings)
    workers = recipe.python_of(environment) if environment else python
    hosts = nodes.configured(asked.benchmark)
    convergence_check.run(asked, how, manifest, output, log, workers, hosts, begin)
