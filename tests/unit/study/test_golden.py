"""The canonical JSON of a specification never changes, not even by a byte: a change would make every run again.

golden/ holds copies of old configurations, so a preset may change. The .txt file beside each lists every canonical JSON
that the configuration asks for, without repeat and protocol, in the order of the runs, each with the number of repeats.
`python -m tests.unit.study.test_golden` writes these files again.
"""

from collections import Counter
from pathlib import Path

import pytest

from throughline.study import runs
from throughline.study.config import load

GOLDEN = Path(__file__).parent / "golden"
CONFIGURATIONS = sorted(GOLDEN.glob("*.yaml"))


def lines(configuration: Path) -> str:
    asked = Counter(
        spec.canonical.replace(f'"protocol":{spec.protocol},', "").replace(f'"repeat":{spec.repeat},', "")
        for spec in runs.expand(load([configuration]))
    )
    return "".join(f"{count} {line}\n" for line, count in asked.items())


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda path: path.stem)
def test_canonical_json_is_what_it_was(configuration: Path) -> None:
    assert lines(configuration) == configuration.with_suffix(".txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for path in CONFIGURATIONS:
        path.with_suffix(".txt").write_text(lines(path), encoding="utf-8")
