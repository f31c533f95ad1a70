"""Without exchange (extra `noexchange`) every rank trains exactly like a single process that reads this rank's rows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import training_fixtures
from framework_lab import python
from throughline import frameworks
from throughline.checks import equivalence, reference
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.rank.data import Manifest

ALWAYS = ("hf-trainer",)
"""Frameworks that always exchange gradients, and say so."""


@pytest.mark.parametrize("framework", [name for name in frameworks.NAMES if name not in ALWAYS])
def test_every_rank_trains_alone(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = python(framework)
    manifest = training_fixtures.corpus(tmp_path / "data")
    plain = equivalence.settings(training_fixtures.spec(framework=framework, topology="1n2g"), steps=6)
    spec = replace(plain, options=replace(plain.options, exchange=False))
    weights, place = tmp_path / "weights.npz", tmp_path / "run1.json"
    data = Manifest(manifest, "corpus")
    reference.initial(spec, data, weights)
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))
    record = launcher.run(
        RunRequest(
            spec=spec, record=place, log=place.with_suffix(".log"), manifest=manifest, weights=weights,
            python=interpreter or sys.executable,
        )
    )  # fmt: skip
    assert record["status"] == "ok" and not record["spec"]["options"]["exchange"]
    assert "exchange" not in record["settings"]["timed_step"]
    for rank in (0, 1):
        alone = reference.train(spec, data, weights, [reference.batches_of(spec, data, rank)]).losses
        assert record["ranks"][rank]["loss"] == pytest.approx(alone, rel=equivalence.TOLERANCE)
    assert record["ranks"][0]["loss"] != pytest.approx(record["ranks"][1]["loss"], rel=1e-3)
