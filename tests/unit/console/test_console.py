"""The line about a run that has just ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from report_fixture import record
from throughline.console.console import outcome
from throughline.console.plan import Plan
from throughline.files import write_json
from throughline.spec import RunSpec
from throughline.study import runs
from throughline.study.config import load


def finish(spec: RunSpec, speed: float, digest: str) -> None:
    content = record(spec.values(), speed)
    content["environment"] = content["environment"] | {"digest": digest}
    Path(spec.record).parent.mkdir(parents=True, exist_ok=True)
    write_json(Path(spec.record), content)


def test_the_median_so_far_mixes_no_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary leaves repeats of another program out, so the line does too."""
    every = runs.expand(load([], {"benchmarks": {"b": {"sequence_length": 32, "topologies": ["1n1g"], "repeats": 5}}}))
    monkeypatch.chdir(tmp_path)
    plan = Plan(every, [], root=tmp_path)
    for spec, speed, digest in zip(every, (20.0, 30.0, 200.0, 210.0), ("old", "old", "new", "new"), strict=False):
        finish(spec, speed, digest)
    assert outcome(every[1], plan).endswith("(repeat 2): 30.0 samples/s, median of 2: 25.0")
    assert outcome(every[3], plan).endswith("(repeat 4): 210.0 samples/s, median of 2: 205.0")
    finish(every[4], 99.0, "newest")
    assert outcome(every[4], plan).endswith("(repeat 5): 99.0 samples/s")
