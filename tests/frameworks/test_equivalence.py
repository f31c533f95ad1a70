"""Do the frameworks compute the same, and would it be noticed if they did not?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import training_fixtures
from framework_lab import Lab, python
from throughline import frameworks, records
from throughline.checks import equivalence, reference
from throughline.rank.data import Manifest
from throughline.study.runs import RunSpec


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for no real run."""
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))


@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_fifty_steps_on_one_and_two_devices_are_the_reference(lab: Lab, tmp_path: Path, framework: str) -> None:
    pythons = {framework: python(framework)}
    specs = [training_fixtures.spec(framework=framework, topology=topology) for topology in ("1n1g", "1n2g")]
    result = equivalence.prove(specs, lab.manifest, pythons, tmp_path / "equivalence")
    output = tmp_path / "equivalence.json"
    records.write(records.Equivalence, result, output)
    found = records.read_equivalence(output)
    assert found.steps == 50 and found.tolerance == 1e-5
    assert list(found.reference_loss) == ["1", "2"]
    for topology, one in found.frameworks[framework].items():
        assert one.verdict == "equal", (topology, one.reason)
        assert len(one.difference) == 50
        assert one.largest_difference is not None and one.largest_difference < 5e-6
    assert found.of(framework) is not None and found.of(framework).verdict == "equal"
    assert (tmp_path / "equivalence" / f"{framework}_1n2g.log").is_file()
    assert "50 steps on 1n1g, 1n2g with 4 samples a replica" in found.covers


def test_a_layout_that_no_framework_has_is_said_to_be_unsupported(lab: Lab, tmp_path: Path) -> None:
    spec = training_fixtures.spec(options={"tensor": 2})
    (request,) = equivalence.requests([spec.model_copy(update={"topology": "1n2g"})]).values()
    assert [(one.topology, one.size.replicas) for one in request] == [("1n2g", 1)]
    result = equivalence.prove(request, lab.manifest, {}, tmp_path / "equivalence")
    records.write(records.Equivalence, result, tmp_path / "equivalence.json")
    one = records.read_equivalence(tmp_path / "equivalence.json").frameworks["torch"]["1n2g"]
    assert (one.verdict, one.reason) == (
        "unsupported",
        "bert-tiny in torch has no several devices for one replica (tensor parallelism)",
    )
    assert result["reference_loss"] == {}


def settled(**changes: object) -> RunSpec:
    spec = equivalence.settings(training_fixtures.spec(**changes))
    assert spec.options.dropout == 0 and spec.optimizer.weight_decay == 0 and spec.precision == "fp32"
    return spec


def distance(ours: list[float], others: list[float]) -> float:
    return float(np.max(np.abs(np.array(ours) / np.array(others) - 1)))


def test_small_differences_in_the_mathematics_are_noticed(lab: Lab, tmp_path: Path) -> None:
    """Another epsilon, rate, beta or order of the data: each is further from the reference than is tolerated."""
    weights, manifest = tmp_path / "weights.npz", Manifest(lab.manifest, "corpus")
    spec = settled()
    reference.initial(spec, manifest, weights)
    true = reference.losses(spec, manifest, weights)
    constants: list[dict[str, object]] = [{"epsilon": 1e-6}, {"learning_rate": 1.01e-4}, {"betas": [0.9, 0.998]}]
    others = [spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update=one)}) for one in constants]
    for other in [*others, spec.model_copy(update={"seed": 43})]:
        assert distance(reference.losses(other, manifest, weights), true) > 3 * equivalence.TOLERANCE
    assert distance(reference.losses(spec, manifest, weights), true) < 1e-12


def test_a_framework_that_computes_something_else_is_marked_everywhere(tmp_path: Path) -> None:
    import report_fixture
    from throughline.report.analysis import cells
    from throughline.report.analysis.summary import summarize
    from throughline.report.render.topics import write_tables
    from throughline.report.topics import Scope

    paths = report_fixture.write_series(tmp_path, {"1n1g": [100.0] * 3})
    losses = {"loss": [1.0, 2.0], "difference": [0.0, 3e-3], "largest_difference": 3e-3, "at_step": 2}
    content = {
        "schema": 1, "benchmark": "bert", "model": "bert-tiny", "sequence": 32, "batch_size_per_device": 32, "steps": 2,
        "tolerance": 1e-4, "reference": "r", "limits": "l", "reference_loss": {"1": [1.0, 2.0]},
        "optimizer": training_fixtures.spec().optimizer.model_dump(),
        "frameworks": {"torch": {"1n1g": {"verdict": "different", "reason": "its loss is off by 3.0e-03", **losses}}},
    }  # fmt: skip
    (tmp_path / "equivalence.json").write_text(json.dumps(content))
    compared = records.read_equivalence(tmp_path / "equivalence.json")
    made = summarize(paths, repeats=3, equivalence=compared)
    assert any("does not compute what the others do" in text for text in made.frameworks["torch"]["1n1g"].warnings)
    found = cells.groups([made])
    write_tables(Scope(found), tmp_path / "tables")
    for name in ("throughput.md", "throughput.tex", "memory.md", "memory.tex"):
        assert "torch (unequal)" in (tmp_path / "tables" / name).read_text(), name
    assert ",different," in (tmp_path / "tables" / "throughput.csv").read_text()


def test_settings_that_differ_between_frameworks_are_warned_about() -> None:
    from throughline.report.analysis import advice

    settings = {"torch": {"gelu": "erf", "clip": "none"}, "other": {"gelu": "tanh", "clip": "none"}, "oom": None}
    notes = advice.about_frameworks(settings, {})
    assert notes == {
        "torch": [],
        "other": ["gelu is tanh here and erf in torch: they do not do the same work"],
        "oom": [],
    }
