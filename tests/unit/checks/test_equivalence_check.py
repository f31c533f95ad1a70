"""Which benchmarks have a numerical equivalence check, and which runs it consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import records, workloads
from throughline.checks import equivalence, reference_process, updates
from throughline.files import UserError
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.records import Equivalence
from throughline.records.checks import Updates
from throughline.report.analysis import advice
from throughline.spec import RunSpec, Schedule, Topology, values
from throughline.study import runs
from throughline.study.config import load
from throughline.workloads import faces

ALONE = {"frameworks": ["torch"]}
SYNTHETIC = {"data": "synthetic"}
BLOCK = {
    "sequence_length": 32, "topologies": ["1n1g", "1n4g"], "batch": {"bf16": [8], "fp32": [64, 16]}, "repeats": 2,
    "frameworks": ["torch", "torch-horovod"],
}  # fmt: skip


def requested(**changes: Any) -> dict[str, list[RunSpec]]:
    config = load([], {"benchmarks": {"b": BLOCK | changes, "alone": {"sequence_length": 32}}})
    return equivalence.requests(runs.expand(config))


def test_a_comparison_of_frameworks_has_an_equivalence_check_and_one_framework_alone_has_none() -> None:
    (name, specs), *others = requested(extras=["aa", "synthetic"]).items()
    assert (name, others) == ("b", [])
    assert [(spec.framework, str(spec.topology), spec.precision) for spec in specs] == [
        (framework, *each)
        for framework in BLOCK["frameworks"]
        for each in (("1n1g", "fp32"), ("1n1g", "bf16"), ("1n2g", "fp32"))
    ]
    assert {(spec.batch, spec.repeat, spec.hosts) for spec in specs} == {(16, 1, None)}


def test_one_device_is_proven_on_one_device() -> None:
    assert {str(spec.topology) for spec in requested(topologies=["1n1g"])["b"]} == {"1n1g"}


def test_one_framework_has_a_check_where_its_options_change_how_a_model_lies_on_its_ranks() -> None:
    assert requested(**ALONE) == {}
    fp32: dict[str, Any] = {"batch": {"fp32": [16]}}
    pairs = requested(**ALONE, **fp32, topologies=["1n2g", "1n4g"], options={"tensor_parallel": 2})["b"]
    assert [(str(spec.topology), spec.size.replicas, spec.options.tensor_parallel) for spec in pairs] == [
        ("1n2g", 1, 2), ("1n4g", 2, 2),
    ]  # fmt: skip
    sharded = requested(**ALONE, topologies=["1n2g", "1n4g"], options={"sharding": "zero1"})["b"]
    assert [str(spec.topology) for spec in sharded] == ["1n2g", "1n2g"]  # a single replica cannot shard
    assert equivalence.settings(sharded[0]).options.layout == sharded[0].options.layout
    experts = requested(**ALONE, topologies=["1n4g", "1n8g"], options={"expert_parallel": 4})["b"]
    assert [str(spec.topology) for spec in experts[::2]] == ["1n4g", "1n8g"]
    by_nodes = {"sharding": "full_shard", "hybrid_shard_groups": "nodes"}
    groups = requested(**ALONE, topologies=["2n8g"], options=by_nodes)["b"]
    assert str(groups[0].topology) == "1n4g"
    assert equivalence.settings(groups[0]).options.hybrid_shard_groups == 2
    assert "options.hybrid_shard_groups: 2 instead of nodes" in equivalence.covers(groups)


@dataclass(frozen=True)
class Split(workloads.Part):
    tables: int = workloads.key("ranks that the tables lie on", default=4, whole=1)


def test_a_workload_that_splits_its_model_has_an_equivalence_check(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = training_fixtures.spec()
    monkeypatch.setattr(type(workloads.of(spec.model)), "parameters", Split)
    for tables, checked in ((4, True), (1, False)):
        split = replace(spec, parameters=Split(tables))
        assert bool(equivalence.requests([split])) == checked
    assert workloads.whole(spec.model) == {"tables": 1}


def test_a_strong_scaling_is_proven_with_the_smallest_batch_of_a_replica() -> None:
    specs = requested(scaling="strong", batch={"fp32": [64]})["b"]
    assert {(spec.batch, spec.scaling) for spec in specs} == {(16, "weak")}


def test_a_check_of_a_global_batch_accumulates() -> None:
    """On 1n4g a step is one micro-batch, on 1n1g it is four: then the equivalence check has two."""
    specs = requested(global_batch=64, batch={"fp32": [16]}, topologies=["1n4g", "1n1g"])["b"]
    assert {spec.global_batch for spec in specs} == {None}
    assert {equivalence.settings(spec).options.gradient_accumulation for spec in specs} == {2}


def test_a_batch_that_a_workload_cannot_be_checked_with_is_made_larger() -> None:
    block = {"model": "iresnet-tiny", "classifier": "model_parallel", "topologies": ["1n2g"], "options": SYNTHETIC}
    for batch, checked in ((2, faces.WORKLOAD.check_batch), (16, 16)):
        config = load([], {"benchmarks": {"b": block | {"batch": {"fp32": [batch]}}}})
        (specs,) = equivalence.requests(runs.expand(config)).values()
        assert {spec.batch for spec in specs} == {checked}
        assert f"with {checked} samples a replica" in equivalence.covers(specs)[0]


def test_what_is_measured_is_what_is_checked() -> None:
    options = {
        "clip": "norm", "gradient_accumulation": 2, "compile": True, "remove_padding": True,
        "activation_checkpointing": True, "dropout": 0.1,
    }  # fmt: skip
    optimizer = {"name": "lamb", "betas": [0.8, 0.99], "epsilon": 1e-7, "weight_decay": 0.05, "momentum": 0.9}
    measured = training_fixtures.spec(precision="bf16", options=options, optimizer=optimizer)
    checked = equivalence.settings(measured)
    assert checked.options == replace(measured.options, dropout=0.0)
    known = {"learning_rate": 3e-3, "weight_decay": 1.0, "schedule": values(Schedule())}
    assert values(checked.optimizer) == optimizer | known
    assert (checked.precision, checked.steps.timed, checked.steps.warmup) == ("bf16", equivalence.LOWER_STEPS, 0)
    assert equivalence.settings(replace(measured, precision="fp32")).steps.timed == equivalence.STEPS
    plain = training_fixtures.spec(optimizer={"name": "adam", "weight_decay": 0.01})
    assert equivalence.settings(plain).optimizer == plain.optimizer  # its decay is in the gradient, so it shows
    none = training_fixtures.spec(optimizer={"weight_decay": 0.0})
    assert equivalence.settings(none).optimizer == none.optimizer


def test_what_a_check_covers_names_what_is_measured_otherwise() -> None:
    measured = training_fixtures.spec(options={"compile": True, "clip": "norm", "gradient_accumulation": 264})
    lower, wider = (replace(measured, precision="bf16"), replace(measured, topology=Topology(1, 2)))
    assert equivalence.covers([measured, lower, wider]) == [
        "fp32 against the reference: 50 steps on 1n1g, 1n2g with 4 samples a replica",
        "bf16 against fp32 of the same framework: 10 steps on 1n1g",
        "as measured: adamw, clip norm, compile true, activation_checkpointing false, remove_padding false, data real, "
        "sharding none, tensor_parallel 1",
        "optimizer.weight_decay: 1.0 instead of 0.01",
        "options.gradient_accumulation: 2 instead of 264",
        "options.dropout: 0.0 instead of 0.1",
    ]


FINE = [2.0, 1.5, 1.2]


@pytest.mark.parametrize(
    ("losses", "expected", "verdict", "reason"),
    [
        (FINE, FINE, "equal", None),
        ([2.0, 1.5, 1.3], FINE, "different", "its loss is off by 8.3e-02, and 1.0e-02 is tolerated"),
        ([2.0, math.nan, math.inf], FINE, "different", "its loss is not finite from step 2 on"),
        ([math.nan] * 3, FINE, "different", "its loss is not finite from step 1 on"),
        (FINE, [2.0, 1.5, math.nan], "invalid", "own loss is not finite from step 3 on"),
    ],
)
def test_losses_that_end_in_nothing_are_judged(
    losses: list[float], expected: list[float], verdict: str, reason: str | None
) -> None:
    comparison = equivalence.judged(losses, expected, 1e-2)
    assert comparison.verdict == verdict
    assert comparison.reason is None if reason is None else reason in str(comparison.reason)


def checked(
    monkeypatch: pytest.MonkeyPatch, folder: Path, outcomes: dict[str, Any], precisions: tuple[str, ...] = ("fp32",)
) -> Equivalence:
    """Make an equivalence check whose runs have these outcomes: precision -> changes of the record, or an error."""

    def run(request: RunRequest) -> dict[str, Any]:
        outcome = outcomes[request.spec.precision]
        if isinstance(outcome, Exception):
            raise outcome
        return {"status": "ok", "reason": None, "scaler_skipped_steps": 0, "ranks": [], **outcome}

    monkeypatch.setattr(equivalence.launcher, "run", run)
    monkeypatch.setattr(reference_process, "initial", lambda *given: None)
    monkeypatch.setattr(reference_process, "train", lambda *given: reference_process.Trained(TRUE, 0, ["key.bias"]))
    specs = [training_fixtures.spec(precision=one, options={"clip": "value"}) for one in precisions]
    records.write(records.Equivalence, equivalence.check(specs, None, {}, folder / "check"), folder / "check.json")
    return records.read_equivalence(folder / "check.json")


TRUE = [10.0 - step / 10 for step in range(equivalence.STEPS)]
EQUAL = {"ranks": [{"loss": TRUE}]}
NAN = {
    "status": "invalid", "reason": "the loss is not finite from step 4 on (rank 1)",
    "ranks": [{"loss": TRUE}, {"loss": [*TRUE[:3], *[None] * 47]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "verdict", "reason"),
    [
        (EQUAL, "equal", None),
        ({**EQUAL, "status": "invalid", "reason": "the loss does not fall"}, "equal", None),
        (NAN, "different", "1n1g: its loss is not finite from step 4 on"),
        ({"status": "invalid", "reason": "rank 1 timed 3", "ranks": [{"loss": TRUE[:3]}]}, "invalid", "rank 1 timed"),
        ({"status": "oom", "reason": "no memory"}, "oom", "1n1g: no memory"),
        ({"status": "unsupported", "reason": "no GPU"}, "unsupported", "1n1g: no GPU"),
        (UserError("killed"), "failed", "1n1g: killed"),
        (ValueError("Out of range float values"), "failed", "1n1g: Out of range"),
    ],
)  # fmt: skip
def test_whatever_a_run_comes_to_there_is_a_check_with_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any, verdict: str, reason: str | None
) -> None:
    check = checked(monkeypatch, tmp_path, {"fp32": outcome})
    mathematics = check.of("torch")
    assert mathematics is not None and mathematics.verdict == verdict
    assert mathematics.reason is None if reason is None else reason in mathematics.reason
    warned = advice.about_frameworks({}, {"torch": mathematics})
    assert bool(warned) == (verdict not in ("equal", "unsupported"))
    assert ("options.clip: value had nothing to clip in these steps" in check.covers) == bool(check.reference_loss)


def test_a_check_that_is_stopped_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(launcher.Stopped):
        checked(monkeypatch, tmp_path, {"fp32": launcher.Stopped("x: stopped from outside")})


def test_each_precision_is_held_against_fp32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(factor: float, **changes: Any) -> dict[str, Any]:
        return {"ranks": [{"loss": [loss * factor for loss in TRUE[: equivalence.LOWER_STEPS]]}], **changes}

    def verdict(outcome: Any, precision: str = "bf16", fp32: Any = EQUAL) -> tuple[str, str | None]:
        check = checked(monkeypatch, tmp_path, {"fp32": fp32, precision: outcome}, ("fp32", precision))
        of_precision, plain = check.of("torch", precision), check.of("torch")
        assert of_precision and plain and (fp32 is not EQUAL or plain.verdict == "equal")
        assert not any(text.startswith(precision) for text in plain.covers)
        assert any(text.startswith(precision) for text in of_precision.covers)
        return of_precision.verdict, of_precision.reason

    assert verdict(lower(1 + 5e-4)) == ("equal", None)
    assert verdict(lower(1 + 5e-4), "fp16")[0] == "different"
    assert verdict(lower(1 + 2e-3)) == ("different", "bf16: its loss is off by 2.0e-03, and 1.3e-03 is tolerated")
    skipped = {"status": "invalid", "reason": "the loss scaler skipped", "scaler_skipped_steps": 1}
    skipped |= {"equivalence": {"skipped_steps": [2], "updates": {}, "reason": "none were left"}}
    assert verdict(lower(1 + 1e-4, **skipped), "fp16") == ("equal", None)
    assert verdict(lower(1 + 5e-4, **skipped), "fp16")[0] == "different", "a skipped step widens nothing"
    skipped["scaler_skipped_steps"] = 9
    assert verdict(lower(1.0, **skipped), "fp16") == ("invalid", "fp16: the loss scaler skipped")
    assert verdict(lower(1.0), fp32={"status": "oom", "reason": "no memory"})[0] == "oom"


def test_a_run_whose_scaler_skips_steps_is_held_against_a_reference_that_skips_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is made again, so that its updates are compared with those of the same steps."""
    asked: list[reference_process.Asked] = []

    def train(*given: Any) -> reference_process.Trained:
        asked.append(given[-1])
        return reference_process.Trained(TRUE, 0)

    runs = iter([[2, 3], [2, 3], [1], [1, 2]])

    def run(request: RunRequest) -> dict[str, Any]:
        steps, half = request.spec.steps.timed, request.spec.precision == "fp16"
        at = next(runs) if half else []
        check = {"skipped_steps": at, "updates": {}, "reason": "none"}
        ranks = [{"loss": TRUE[:steps]}]
        return {"status": "ok", "reason": None, "scaler_skipped_steps": len(at), "ranks": ranks, "equivalence": check}

    monkeypatch.setattr(equivalence.launcher, "run", run)
    monkeypatch.setattr(reference_process, "initial", lambda *given: None)
    monkeypatch.setattr(reference_process, "train", train)
    specs = [training_fixtures.spec(precision=precision) for precision in ("fp32", "fp16")]
    half = equivalence.check(specs, None, {}, tmp_path / "check")["precisions"]["torch"]["fp16"]
    assert (half["verdict"], half["skipped_steps"]) == ("equal", [2, 3])
    assert [list(one.skipped) for one in asked] == [[], [2, 3]]
    assert [list(one.updates) for one in asked] == [["10", "50"], ["10"]]
    half = equivalence.check(specs, None, {}, tmp_path / "check")["precisions"]["torch"]["fp16"]
    assert half["verdict"] == "invalid" and "[1] in one run, and [1, 2] in the next" in half["reason"]


FIFTY = training_fixtures.spec(optimizer={"name": "sgd"}, steps={"timed": 50})
ZERO = {"update": 0.0, "difference": 0.0, "weights": 0.0}
RIGHT = {"update": 2.0, "difference": 2e-5, "weights": 1.0}


@pytest.mark.parametrize(
    ("changed", "verdict", "reason"),
    [
        ({}, "equal", None),
        ({"query": RIGHT | {"difference": 2.0}}, "different", "query is off by 1.0e+00, and 1.0e-04"),
        ({"query": RIGHT | {"difference": 4e-4}}, "different", "query is off by 2.0e-04, and 1.0e-04"),
        ({"query": RIGHT | {"difference": 3e-4, "weights": 50.0}}, "equal", None),
        ({"query": RIGHT | {"difference": None}}, "different", "query is not finite"),
        ({"query": ZERO | {"difference": 1.0}}, "different", "leaves query as it is"),
    ],
)
def test_the_worst_tensor_decides(changed: dict[str, Any], verdict: str, reason: str | None) -> None:
    """The tolerance grows by what fifty roundings of the weights can hide, at most 50 x 2^-24 x 50 / 2 = 7e-5 here."""
    found = {"updates": {"value": RIGHT, "query": RIGHT, "frozen": ZERO, **changed}, "reason": None}
    judged = updates.judged(found, FIFTY, [])
    assert judged.verdict == verdict
    assert judged.reason is None if reason is None else reason in str(judged.reason)
    assert judged.worst == ("query" if changed else "value") and "frozen" not in judged.tensors


def test_what_cannot_be_seen_is_left_out_by_name() -> None:
    gain = {"update": 1e-5, "difference": 9e-6, "weights": 8.0}
    bias = {"update": 1e-19, "difference": 1e-11, "weights": 0.0}
    found = {"updates": {"query": RIGHT, "gain": gain, "key.bias": bias}, "reason": None}
    judged = updates.judged(found, FIFTY, ["key.bias"])
    assert (judged.verdict, list(judged.tensors)) == ("equal", ["query"])
    assert judged.left_out == {updates.UNSEEN: ["gain"], updates.NO_GRADIENT: ["key.bias"]}
    shown = updates.judged(found, FIFTY, ["key.bias"], ["query", "gain", "value"])
    assert shown.left_out[updates.UNKNOWN] == ["value"], "no framework drops a tensor unseen"
    nothing = updates.judged({"updates": {"gain": gain}, "reason": None}, FIFTY, [])
    assert (nothing.verdict, nothing.reason) == ("not compared", updates.UNSEEN)
    for record in (None, {"updates": {}, "reason": "its record has no updates"}):
        assert updates.judged(record, FIFTY, []) == Updates(verdict="not compared", reason="its record has no updates")


@pytest.mark.parametrize("precision", ["fp32", *updates.LOWER])
def test_a_tensor_that_is_never_updated_is_found_in_every_precision(precision: str) -> None:
    """Also where a workload's rounding is larger, and where the rounding of the weights hides as much as it may."""
    spec = replace(FIFTY, model="resnet-tiny", precision=precision)
    still = {"update": 1.0, "difference": 1.0, "weights": 0.29 / (50 * updates.ROUNDING)}
    judged = updates.judged({"updates": {"query": still}, "reason": None}, spec, [])
    assert judged.verdict == "different", judged


def test_equal_losses_with_other_updates_are_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"query": RIGHT | {"difference": 2.0}, "key.bias": RIGHT | {"difference": 2.0}}
    outcome = {**EQUAL, "equivalence": {"skipped_steps": [], "updates": found, "reason": None}}
    check = checked(monkeypatch, tmp_path, {"fp32": outcome})
    mathematics = check.of("torch")
    assert mathematics is not None and mathematics.verdict == "different"
    assert "the update of query is off by 1.0e+00" in str(mathematics.reason)
    (compared,) = check.frameworks["torch"].values()
    assert compared.updates is not None and compared.updates.left_out == {updates.NO_GRADIENT: ["key.bias"]}
    assert compared.largest_difference == 0.0, "the losses are equal"


def test_a_workload_without_a_reference_is_said_to_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = training_fixtures.spec()
    monkeypatch.setattr(type(workloads.of(spec.model)), "no_reference", "its images are cut at random")
    result = equivalence.check([spec], None, {}, tmp_path / "equivalence")
    records.write(records.Equivalence, result, tmp_path / "equivalence.json")
    comparison = records.read_equivalence(tmp_path / "equivalence.json").frameworks["torch"]["1n1g"]
    assert (comparison.verdict, comparison.reason) == ("unsupported", "its images are cut at random")


def test_every_optimizer_that_a_check_can_use_has_a_tolerance() -> None:
    """BERTAdam had none, and its check ended with a KeyError after all runs."""
    assert set(updates.TOLERANCE) == set(equivalence.RATE)
