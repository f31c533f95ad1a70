"""Search for the largest batch per device that fits, or for the most classes, in each framework.

It writes results/<benchmark>/max_<quantity>_<precision>.json.

specs: run specifications as a JSON list, one per framework
output: the result; records and logs of tries go beside it
quantity: the batch, or the parameter of the model, whose largest value is searched for
manifest: manifest.json of the shards (not for synthetic data)
environment: the workers' environment, as FRAMEWORK=NAME; may be repeated
"""

from collections.abc import Sequence
from pathlib import Path


def main(
    specs: str, output: Path, quantity: str = "batch", manifest: Path | None = None, environment: Sequence[str] = ()
) -> None:
    from throughline import records
    from throughline.checks import max_batch
    from throughline.installation import recipe
    from throughline.launch import lock, nodes
    from throughline.study.runs import read_specs

    tried, pythons = read_specs(specs), recipe.pythons_of(environment)
    hosts = nodes.configured(tried[0].benchmark)
    with lock.record(output):
        result = max_batch.find(tried, manifest, pythons, output.with_suffix(""), hosts, quantity)
        records.write(records.MaxBatch, result, output)
