"""Without exchange (extra `no_gradient_sync`) every rank trains exactly like a single process that reads this rank's
rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import training_fixtures
from framework_lab import python
from throughline import frameworks
from throughline.checks import equivalence, reference
from throughline.frameworks.rank import load
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.rank.data import Manifest
from throughline.spec import RunSpec

ALWAYS = ("hf-trainer",)
"""Frameworks that always exchange gradients, and say so."""
AS_TORCH = ("hf-loop",)
"""Frameworks that have the code of `torch` for it."""


def spec_of(framework: str) -> RunSpec:
    plain = equivalence.settings(training_fixtures.spec(framework=framework, topology="1n2g"), steps=6)
    return replace(plain, options=replace(plain.options, gradient_sync=False))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[list[float]]]:
    """The manifest and the weights that all runs start from, and the losses of each rank if it trains alone."""
    folder, spec = tmp_path_factory.mktemp("alone"), spec_of("torch")
    manifest, weights = training_fixtures.corpus(folder / "data"), folder / "weights.npz"
    data = Manifest(manifest, "corpus")
    reference.initial(spec, data, weights)
    sources = ([reference.batches_of(spec, data, rank)] for rank in (0, 1))
    return manifest, weights, [reference.train(spec, data, weights, source).losses for source in sources]


def test_frameworks_that_are_left_out_have_the_code_of_torch() -> None:
    for name in AS_TORCH:
        assert load(name).exchange is load("torch").exchange  # type: ignore[attr-defined]


@pytest.mark.parametrize("framework", [name for name in frameworks.NAMES if name not in ALWAYS + AS_TORCH])
def test_every_rank_trains_alone(
    alone: tuple[Path, Path, list[list[float]]], framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, weights, expected = alone
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiles faster
    place, log = tmp_path / "run1.json", tmp_path / "run1.log"
    record = launcher.run(RunRequest(spec_of(framework), place, log, manifest, python(framework), weights=weights))
    assert record["status"] == "ok" and not record["spec"]["options"]["gradient_sync"]
    assert "exchange" not in record["settings"]["timed_step"]
    for rank, losses in zip(record["ranks"], expected, strict=True):
        assert rank["loss"] == pytest.approx(losses, rel=equivalence.TOLERANCE)
    assert record["ranks"][0]["loss"] != pytest.approx(record["ranks"][1]["loss"], rel=1e-3)
