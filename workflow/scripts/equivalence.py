"""Check whether all frameworks of a benchmark compute the same from the same weights on the same batches.

It writes results/<benchmark>/equivalence.json.

specs: run specifications as a JSON list: frameworks x topologies
output: equivalence.json; records and logs go beside it
manifest: manifest.json of the shards (not for synthetic data)
environment: the workers' environment, as FRAMEWORK=NAME; may be repeated
"""

from collections.abc import Sequence
from pathlib import Path


def main(specs: str, output: Path, manifest: Path | None = None, environment: Sequence[str] = ()) -> None:
    from throughline import records
    from throughline.checks import equivalence
    from throughline.installation import recipe
    from throughline.study.runs import read_specs

    result = equivalence.check(read_specs(specs), manifest, recipe.pythons_of(environment), output.with_suffix(""))
    records.write(records.Equivalence, result, output)
