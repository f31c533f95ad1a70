"""What every framework has to do, whatever library it uses. `fake` shows that a new framework can do it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from framework_steps import ASKED

import training_fixtures
from framework_lab import Lab, arguments, helped
from process_helpers import needs
from throughline import frameworks, records, workloads
from throughline.checks import reference
from throughline.frameworks import horovod
from throughline.rank.data import Manifest
from throughline.spec import Options

HOROVOD = [name for name in frameworks.NAMES if frameworks.of(name).starter]


def horovod_options(**changes: Any) -> Options:
    return training_fixtures.spec(framework="torch-horovod", options=changes).options


def test_a_new_framework_on_two_devices(lab: Lab) -> None:
    """tests/workflow/test_all_frameworks.py checks the same for the real frameworks."""
    record = lab.run("fake", topology="1n2g", options={"gradient_accumulation": 2}, steps={"max_total_seconds": 3600})
    assert (record.status, record.reason) == ("ok", None)
    assert (record.steps_timed, record.warmup_steps, len(record.step_seconds), len(record.loss)) == (4, 2, 4, 4)
    assert record.window_s is not None and record.samples_per_s == pytest.approx(2 * 4 * 2 * 4 / record.window_s)
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert record.data is not None and record.data.rows == 120
    assert record.work is not None and record.work.matmul_flops_per_s is None
    assert "does not measure it" in record.work.reasons["matmul_flops_per_s"]
    start = record.start_up
    assert start and start.imports_s and start.imports_s > 0.05 and 0 < start.first_step_s < start.total_s < 60


@pytest.mark.alone
@pytest.mark.parametrize("framework", ["fake", "hf-trainer", "jax", "tensorflow", "torch"])
def test_one_device_without_reading(lab: Lab, framework: str) -> None:
    steps = {"warmup": 30, "timed": 10_000, "max_total_seconds": 2.0}
    record = lab.run(framework, options={"data": "synthetic", "dropout": 0.0}, optimizer={"name": "lamb"}, steps=steps)
    assert record.status == "ok" and record.data is None
    assert sum(record.step_seconds) == pytest.approx(record.window_s, rel=0.2, abs=0.05)
    if framework != "fake":
        assert 3 <= record.steps_timed < 10_000 and record.window_s < 4
        assert any("max_total_seconds 2" in warning for warning in record.warnings)
        assert record.settings is not None and record.settings["optimizer"] == "lamb"


@pytest.mark.parametrize("framework", HOROVOD)
def test_over_mpi(lab: Lab, framework: str) -> None:
    needs(shutil.which("mpirun") is not None, "mpirun")
    record = lab.run(framework, topology="1n2g", options={"controller": "mpi"})
    assert record.status == "ok"
    assert record.environment["framework"]["controller"] == "mpi"
    assert re.fullmatch(r"not built|\d+\.\d+\.\d+", record.environment["framework"]["horovod_nccl"])


def test_on_gpus_horovod_does_not_block_the_host_unless_the_user_says_so() -> None:
    ours, theirs = "HOROVOD_ENABLE_ASYNC_COMPLETION", {"HOROVOD_ENABLE_ASYNC_COMPLETION": "0"}
    assert frameworks.of("torch-horovod").on_gpus({}) == {ours: "1"}
    assert frameworks.of("torch-horovod").on_gpus(theirs) == theirs
    assert frameworks.of("torch").on_gpus({}) == {}


@pytest.mark.parametrize(("found", "reason"), [("/usr/bin/mpirun", "built without MPI"), (None, "no mpirun here")])
def test_without_mpi_its_controller_is_unsupported(
    monkeypatch: pytest.MonkeyPatch, found: str | None, reason: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: found)
    gloo_only: Any = SimpleNamespace(mpi_built=lambda: False)
    with pytest.raises(workloads.Unsupported, match=reason):
        horovod.join(gloo_only, horovod_options(controller="mpi"), "cpu")
    plan = training_fixtures.plan("1n2g", run={"framework": "torch-horovod", "options": {"controller": "mpi"}})
    command = horovod.STARTER.command(frameworks.specification(plan.spec), plan, "launch_plan.json", "folder")
    assert command[0] == ("mpirun" if found else "/env/bin/horovodrun")


@pytest.mark.parametrize(
    ("kind", "built", "wanted", "reason"),
    [
        ("cuda", 0, True, "built without NCCL"),
        ("cuda", 22907, False, "built with NCCL"),
        ("cuda", 22907, True, None),
        ("cuda", 0, False, None),
        ("cpu", 0, True, None),
    ],
)
def test_horovod_exchanges_on_gpus_as_the_options_say(kind: str, built: int, wanted: bool, reason: str | None) -> None:
    met: list[str] = []
    library: Any = SimpleNamespace(nccl_built=lambda: built, init=lambda: met.append("init"))
    options = horovod_options(nccl=wanted)
    if reason is None:
        horovod.join(library, options, kind)
    else:
        with pytest.raises(workloads.Unsupported, match=reason):
            horovod.join(library, options, kind)
    assert met == ([] if reason else ["init"])


def test_a_framework_whose_python_is_missing_is_unsupported(tmp_path: Path) -> None:
    other = Lab(tmp_path)
    pins = tmp_path / "envs/mxnet-horovod.toml"
    pins.write_text(pins.read_text().replace('python = "3.11"', 'python = "2.99"'))
    spec = training_fixtures.spec(framework="mxnet-horovod", topology="1n2g")
    done = other.script("run_training", *arguments(spec, tmp_path, other.manifest))
    assert done.returncode == 0, done.stderr
    found = records.read_run(tmp_path / spec.record)
    assert found.status == "unsupported" and "needs Python 2.99" in str(found.reason)
    assert "UV_PYTHON_DOWNLOADS=automatic make frameworks" in str(found.reason)


@pytest.mark.parametrize(
    ("framework", "changes", "reason"),
    [
        ("mxnet-horovod", {"precision": "bf16", "topology": "1n2g"}, "bf16|fp32"),
        ("fake", {"precision": "bf16", "topology": "1n2g"}, "bf16"),
        ("mxnet-horovod", {"model": "gpt2-tiny", "options": {"data": "synthetic"}}, "GluonNLP.* has no GPT-2"),
        ("fake", {"binding": "numa"}, "this run is on the processor"),
        ("torch", {"topology": "1n2g", "options": {"tensor_parallel": 2}}, "cannot be cut"),
    ],
    ids=["precision", "precision of a new framework", "form of the model", "binding without a GPU", "layout"],
)
def test_what_a_framework_cannot_do_is_a_result_with_its_reason(
    lab: Lab, framework: str, changes: dict[str, Any], reason: str
) -> None:
    record = lab.run(framework, **changes)
    assert (record.status, record.samples_per_s) == ("unsupported", None)
    assert re.search(reason, str(record.reason)), record.reason


def test_a_framework_without_checkpoints_has_no_convergence_check(lab: Lab) -> None:
    manifest = training_fixtures.corpus(lab.folder / "held_out", held_out=1)
    output = lab.folder / "check/curve.json"
    settings = json.dumps({"steps": 4, "evaluate_every": 2, "samples": 8})
    spec = training_fixtures.spec(framework="fake", steps={"warmup": 0}).canonical
    files = ("--manifest", manifest, "--output", output, "--log", output.with_suffix(".log"))
    done = lab.script("convergence", "--settings", settings, "--spec", spec, *files)
    assert done.returncode == 0, done.stderr
    found = records.read_curve(output)
    assert found.status == "unsupported" and found.reason and "safe to load" in found.reason


@pytest.mark.parametrize("phase", ["join", "training"])
def test_a_deadlock_is_a_failure_that_names_its_phase(lab: Lab, phase: str) -> None:
    """The ranks wait for one another, as MXNet's once did: the devices are busy, but no step is done."""
    limit = ("--hang-after", "15")  # the ranks must start within these seconds
    done, record = lab.launch("fake", *limit, topology="1n2g", variables={"FAKE_HANGS_IN": phase})
    assert done.returncode == 1
    where = {"join": "join", "training": "warm-up, step 0 of 2"}[phase]
    assert "no progress for 15 s: rank " in done.stderr and f" in {where}" in done.stderr
    assert not record.exists()
    assert "most recent call first" in record.with_suffix(".log").read_text()


OWN = ("attention", "vocabulary_head")
"""What each framework may do in its own way: the kernel of attention, and the positions that the head looks at."""
STEPPED = ("torch", "mxnet-horovod", "hf-loop", "paddle", "tensorflow")
OPTIONS: list[dict[str, Any]] = [
    {"optimizer": {"name": "adam", "weight_decay": 0.1, "epsilon": 1e-6}},
    {
        "optimizer": {"name": "adamw", "weight_decay": 0.1},
        "options": {"clip": "global_norm", "gradient_accumulation": 2},
    },
    {"optimizer": {"name": "lamb", "weight_decay": 0.1}, "options": {"clip": "value"}},
    {"optimizer": {"name": "adam"}, "options": {"clip": "norm", "gradient_accumulation": 2}},
    {"optimizer": {"name": "sgd", "weight_decay": 0.1}},
    {"optimizer": {"name": "bertadam", "weight_decay": 0.1, "learning_rate": 3e-5}},
]


@pytest.fixture(scope="module")
def losses(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Framework -> losses of every set of options, from the same weights. Each framework runs in one process."""
    folder = tmp_path_factory.mktemp("steps")
    weights = folder / "weights.npz"
    reference.initial(training_fixtures.spec(), Manifest(lab.manifest, "corpus"), weights)
    specs = [
        training_fixtures.spec(**{**one, "options": {"dropout": 0.0, **one.get("options", {})}}).values()
        for one in OPTIONS
    ]
    (folder / "specs.json").write_text(json.dumps(specs))
    found = {}
    for framework in STEPPED:
        (found[framework],) = helped(framework, "framework_steps.py", framework, folder / "specs.json", weights)
    return found


@pytest.mark.parametrize("index", range(len(OPTIONS)), ids=lambda index: json.dumps(OPTIONS[index]))
def test_optimizers_clipping_and_accumulation_are_the_same_in_all(losses: dict[str, Any], index: int) -> None:
    ours, *others = (losses[name]["losses"][index] for name in STEPPED)
    assert max(ours) > min(ours)
    for theirs in others:
        np.testing.assert_allclose(theirs, ours, rtol=2e-5)


@pytest.mark.parametrize("index", range(len(OPTIONS)), ids=lambda index: OPTIONS[index]["optimizer"]["name"])
def test_held_out_text_says_the_same_in_all_and_after_a_checkpoint(losses: dict[str, Any], index: int) -> None:
    for name, found in losses.items():
        middle = len(found["losses"][index]) // 2
        np.testing.assert_allclose(found["resumed"][index], found["losses"][index][middle:], rtol=1e-6, err_msg=name)
    for look in ("before", "after", "after_resuming"):
        for ours, *others in zip(*(losses[name][look][index] for name in STEPPED), strict=True):
            assert all(theirs == pytest.approx(ours, rel=2e-5) for theirs in others)
    whole, part = losses["torch"]["after"][index]
    assert (whole["samples"], part["samples"]) == (4, 3) and whole["masked"] > part["masked"] > 0


def test_settings_are_stated_alike(losses: dict[str, Any]) -> None:
    for stated in zip(*(losses[name]["settings"] for name in STEPPED), strict=True):
        ours, *others = [{key: value for key, value in one.items() if key not in OWN} for one in stated]
        assert all(one["attention"] for one in stated) and others == [ours] * len(others)
    assert "all positions" in losses["hf-loop"]["settings"][0]["vocabulary_head"]


def test_large_matrix_products_are_of_random_numbers(losses: dict[str, Any]) -> None:
    for found in losses.values():
        assert found["operands"] == pytest.approx([1, 1], abs=0.02)


ERRORS = {"fp32": (1e-8, 2e-6), "bf16": (2e-3, 5e-3), "fp16": (2e-4, 5e-4)}
"""Map each precision to the errors of its products: 24, 8 and 11 significant bits.

On a processor without units for bf16, TensorFlow rounds sums of parts as well, and comes to 4.1e-3.
"""


def test_products_are_rounded_as_the_precision_says(losses: dict[str, Any]) -> None:
    for framework, found in losses.items():
        assert "fp32" in found["multiplied"], framework
        for precision, told in found["multiplied"].items():
            least, most = ERRORS[precision]
            assert told["reason"] is None and least < told["relative_error"] < most, (framework, precision)
    assert {"bf16", "fp16"} < losses["torch"]["multiplied"].keys()


def test_a_run_whose_products_are_rounded_more_than_it_claims_is_invalid(lab: Lab) -> None:
    honest = lab.run("fake", topology="1n2g")
    assert honest.status == "ok"
    assert (honest.rounding.claims, honest.rounding.shows, honest.rounding.reason) == ("fp32", "fp32", None)
    done, path = lab.launch("fake", variables={"FAKE_MULTIPLIES_WITH": "11"})
    assert done.returncode == 0, done.stderr
    record = records.read_run(path)
    assert (record.status, record.samples_per_s) == ("invalid", None) and record.rounding is not None
    assert (record.rounding.shows, record.rounding.size) == ("TF32 or fp16", 512)
    assert record.reason and "fp32 was asked for" in record.reason and "or ask for tf32" in record.reason


def test_features_are_what_the_files_do(losses: dict[str, Any]) -> None:
    """Everything that a framework refuses on a CPU is not among its features, or is one that it has on GPUs only."""
    for framework, found in losses.items():
        refused = found["refused"]
        features = frameworks.of(framework).features
        assert set(refused) & features == frameworks.of(framework).gpus_only & ASKED.keys(), framework
        assert not {"compile", "activation_checkpointing", "remove_padding", "bf16"} - features - set(refused)


def test_weights_of_another_network_are_refused() -> None:
    form = workloads.form("bert-tiny", "torch")
    spec = training_fixtures.spec()
    weights = form.weights(form.build(spec, {"vocabulary": 1000}))
    with pytest.raises(ValueError, match="weights of another network"):
        form.load(form.build(spec, {"vocabulary": 1000}), {**weights, "more": np.zeros(1)})


def test_reading_alone(lab: Lab) -> None:
    """Two ranks read a whole epoch together and train nothing; the record says nothing of a model."""
    record = lab.run("fake", topology="1n2g", options={"data": "reading"}, steps={"warmup": 0, "timed": 1})
    assert (record.status, record.reason, record.loss, record.unit) == ("ok", None, None, "samples/s")
    assert record.settings == {"data": "reading", "timed_step": "take a batch"} and record.data is not None
    assert record.work.flops_per_s is None and record.work.reasons["flops_per_s"] == "nothing is trained"
    first, warm = record.figures
    assert first.name in ("reading_cold", "reading_not_cold") and warm.name == "reading_warm"
    assert first.at == warm.at == 1, "workers"
    assert first.value and warm.value and record.samples_per_s
    each = [rank.window_end_s - rank.window_start_s for rank in record.ranks]
    assert warm.value == pytest.approx(sum(record.steps_timed * record.spec.batch / seconds for seconds in each))
