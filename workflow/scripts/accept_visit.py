"""Make one node job of an acceptance: measure everything once at one place, each figure with a record and a log.

visit: the measurements as a JSON list (study/acceptance.py)
output: the node job's file, which is written when all measurements are there
environment: the workers' environment, as FRAMEWORK=NAME; may be repeated
hang_after_s: seconds without progress after which a run is ended
"""

from collections.abc import Sequence
from pathlib import Path


def main(visit: str, output: Path, environment: Sequence[str] = (), hang_after_s: float | None = None) -> None:
    from throughline import files
    from throughline.installation import recipe
    from throughline.launch import lock, node_job
    from throughline.study import acceptance

    with lock.record(output):
        measured = acceptance.read_visit(visit)
        made = node_job.measure_all(measured, output, recipe.pythons_of(environment), hang_after_s)
        files.write_json(output, made)
