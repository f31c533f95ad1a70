"""Do the frameworks compute the same, and would it be noticed if they did not?"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import training_fixtures
from framework_lab import Lab, built, python
from throughline import frameworks, records, workloads
from throughline.checks import equivalence, reference, updates
from throughline.checks.reference_process import Asked, Trained
from throughline.frameworks.rank import load
from throughline.rank.data import Manifest, batches
from throughline.rank.updates import Expected
from throughline.records.checks import Comparison, Updates
from throughline.report.analysis import advice
from throughline.spec import RunSpec, canonical

PHASE_1 = {
    "name": "polynomial", "power": 0.5, "warmup_steps": 2000, "total_steps": 7038, "decay_from": "start",
}  # fmt: skip


@pytest.fixture(scope="module")
def checked(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[records.Equivalence, Path]:
    """One equivalence check of every framework whose environment is built, and the folder of its logs.

    With what is hardest to do on several devices: a norm over all gradients, of several micro-batches. The rate changes
    with every step: NVIDIA's schedule of BERT's first phase.
    """
    pythons = built(frameworks.NAMES)
    options, optimizer = {"clip": "global_norm", "gradient_accumulation": 2}, {"schedule": PHASE_1}
    specs = [
        training_fixtures.spec(
            framework=framework, topology=topology, precision=precision, options=options, optimizer=optimizer
        )
        for framework in pythons
        for topology, precision in (("1n1g", "fp32"), ("1n1g", "bf16"), ("1n2g", "fp32"))
    ]
    folder = tmp_path_factory.mktemp("checked")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiles faster
        result = equivalence.check(specs, lab.manifest, pythons, folder / "equivalence")
    records.write(records.Equivalence, result, folder / "equivalence.json")
    return records.read_equivalence(folder / "equivalence.json"), folder / "equivalence"


@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_fifty_steps_on_one_and_two_devices_are_the_reference(
    checked: tuple[records.Equivalence, Path], framework: str
) -> None:
    python(framework)  # skips where its environment is not built
    found, folder = checked
    assert found.steps == 50 and found.tolerance == 2e-5
    for topology, one in found.frameworks[framework].items():
        assert one.verdict == "equal", (topology, one.reason)
        assert len(one.difference) == 50
        assert one.largest_difference is not None and one.largest_difference < 1e-5
        assert one.updates is not None and one.updates.verdict == "equal", one.updates
        assert len(one.updates.tensors) == 44, "bert-tiny has 46 tensors, and two biases of keys have no gradient"
        ((reason, names),) = one.updates.left_out.items()
        assert "gradient is zero" in reason and {name.split(".")[-2] for name in names} == {"key"}
    assert list(found.reference_loss) == ["1", "2"]
    assert found.of(framework) is not None and found.of(framework).verdict == "equal"
    assert (folder / f"{framework}_1n2g.log").is_file()
    half = found.precisions[framework]["bf16"]
    assert half.verdict == ("unsupported" if framework in ("mxnet-horovod", "paddle") else "equal"), half.reason
    assert half.largest_difference is None or half.largest_difference > 1e-6, "that is no bf16"
    assert "fp32 against the reference: 50 steps on 1n1g, 1n2g with 4 samples a replica" in found.covers
    assert not any("clip" in text and "nothing" in text for text in found.covers)


PROBE = """
import atexit, glob, json, os, sys, time
began = time.monotonic()
held = glob.glob(os.environ["THROUGHLINE_LOCKS"] + "/devices-*.json")

def note():
    words = [" ".join(sys.orig_argv), began, time.monotonic(), bool(held), "torch" in sys.modules]
    with open(os.path.join(os.environ["PROBED"], str(os.getpid())), "w") as file:
        json.dump(words, file)

note()
atexit.register(note)
"""
"""A sitecustomize.py: of every process, when it began and ended, whether somebody held the devices when it began."""


def test_the_reference_is_a_process_that_has_ended_before_the_ranks_start(lab: Lab, tmp_path: Path) -> None:
    """A GPU on which the launcher had trained would be refused: its context would still be there."""
    (tmp_path / "sitecustomize.py").write_text(PROBE)
    (tmp_path / "probed").mkdir()
    spec, output = training_fixtures.spec(framework="fake"), tmp_path / "equivalence.json"
    words = ("--manifest", lab.manifest, "--output", output, "--specs", canonical([spec.values()]))
    lab.script("equivalence", *words, PYTHONPATH=str(tmp_path), PROBED=str(tmp_path / "probed")).check_returncode()
    notes = [json.loads(path.read_text()) for path in (tmp_path / "probed").iterdir()]

    def of(part: str) -> list[list[Any]]:
        return sorted(([*times] for words, *times in notes if part in words), key=lambda times: times[0])

    ((_, _, _, imported),) = of("equivalence.py")
    assert not imported, "the launcher has trained"
    initial, train = of("checks.reference")
    (agent,) = of("launch.agent")
    assert all(held and imported for _, _, held, imported in (initial, train))
    assert initial[1] < train[0] and train[1] < agent[0], "ranks compare their updates with the reference's"


def test_a_framework_that_diverges_takes_nothing_with_it(lab: Lab, tmp_path: Path) -> None:
    """Its record is invalid, its verdict says at which step; there is an equivalence check, and a warning."""
    specs = [training_fixtures.spec(framework="fake", topology=topology) for topology in ("1n1g", "1n2g")]
    output = tmp_path / "equivalence.json"
    words = ("--manifest", lab.manifest, "--output", output, "--specs", canonical([spec.changed() for spec in specs]))
    done = lab.script("equivalence", *words, FAKE_DIVERGES_AT="3")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "equivalence/fake_1n2g.json").read_text())
    assert (record["status"], record["samples_per_s"]) == ("invalid", None)
    assert record["reason"] == "the loss is not finite from step 3 on (rank 0)"
    assert [rank["loss"][2:] for rank in record["ranks"]] == [[None] * 48] * 2
    found = records.read_equivalence(output)
    for one in found.frameworks["fake"].values():
        assert (one.verdict, one.at_step, len(one.loss)) == ("different", 3, 2)
        assert one.reason == "its loss is not finite from step 3 on"
        assert one.updates is not None and one.updates.verdict == "not compared"
        assert one.updates.reason == "fake cannot show its weights: BertForm has no `snapshot`"
    (warning,) = advice.about_frameworks({}, {"fake": found.of("fake")})["fake"]
    assert "not finite from step 3" in warning


Spoil = Callable[[Any], None] | None
"""A change of what has been built. None: it trains as it is."""
Until = Callable[[list[float]], bool] | None
"""Whether these losses are enough to see, so that a training ends. None: it makes all its steps."""


class Check:
    """Runs of torch in this process, and the reference that they are held against."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.manifest, self.weights = Manifest(lab.manifest, "corpus"), folder / "weights.npz"
        reference.initial(training_fixtures.spec(), self.manifest, self.weights)

    def expected(self, spec: RunSpec) -> list[float]:
        return reference.train(spec, self.manifest, self.weights).losses

    def losses(self, spec: RunSpec, spoil: Spoil = None, until: Until = None) -> list[float]:
        """Of every step; `spoil` changes what has been built."""
        return self.trained(self.built(spec), spec, spoil, until)

    def built(self, spec: RunSpec) -> Any:
        rank = load("torch")(spec, 0, 0, 1, "cpu")
        rank.join()
        rank.device()
        rank.model(workloads.of(spec.model).facts(self.manifest.content))
        with np.load(self.weights) as file:
            rank.load({name: file[name] for name in file.files})
        return rank

    def trained(self, rank: Any, spec: RunSpec, spoil: Spoil = None, until: Until = None) -> list[float]:
        rank.optimizer()
        if spoil:
            spoil(rank)
        rows = batches(self.manifest, spec.seed, 0, 1, spec.batch)
        made = (rank.deliver(rank.data(workloads.of(spec.model).batch(some, spec.options))) for some in rows)
        self.skipped: list[int] = []
        losses = []
        for step in range(1, spec.steps.timed + 1):
            losses.append(rank.step(list(itertools.islice(made, spec.options.gradient_accumulation))))
            if rank.skipped() > len(self.skipped):
                self.skipped.append(step)
            if until and until(rank.losses(losses)):
                break
        return list(rank.losses(losses))

    @functools.cache  # noqa: B019 (there is one of this class)
    def reference(self, spec: RunSpec, skipped: tuple[int, ...]) -> tuple[Trained, Path]:
        file = self.weights.with_name(f"updates_{len(list(self.weights.parent.iterdir()))}.npz")
        asked = Asked({str(spec.steps.timed): str(file)}, skipped)
        return reference.train(spec, self.manifest, self.weights, asked=asked), file

    def updates(self, spec: RunSpec, spoil: Spoil = None, skipped: Sequence[int] = ()) -> tuple[Updates, Comparison]:
        """Return the verdicts on the updates and on the losses."""
        true, file = self.reference(spec, tuple(skipped))
        rank = self.built(spec)
        with np.load(self.weights) as weights, np.load(file) as added:
            expected = Expected(rank, weights, added)
        losses = equivalence.judged(self.trained(rank, spec, spoil), true.losses, equivalence.TOLERANCE)
        norms = {each.name: vars(each) for each in expected.compared(rank)}
        found = {"updates": norms, "reason": expected.reason}
        return updates.judged(found, spec, true.without_gradient, true.with_gradient), losses


@pytest.fixture(scope="module")
def check(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Check:
    return Check(lab, tmp_path_factory.mktemp("check"))


def changed(spec: RunSpec, place: str, **changes: Any) -> RunSpec:
    return replace(spec, **{place: replace(getattr(spec, place), **changes)})


def decay_everything(rank: Any) -> None:
    for group in rank.update.param_groups:
        group["weight_decay"] = rank.spec.optimizer.weight_decay


@pytest.mark.parametrize("name", ["adam", "adamw", "bertadam", "lamb"])
def test_every_optimizer_is_its_paper_and_small_differences_are_noticed(check: Check, name: str) -> None:
    asked = training_fixtures.spec(optimizer={"name": name, "epsilon": 1e-8}, options={"clip": "global_norm"})
    spec = equivalence.settings(asked)
    true = check.expected(spec)

    def different(losses: list[float]) -> bool:
        return equivalence.judged(losses, true, equivalence.TOLERANCE).verdict == "different"

    right = equivalence.judged(check.losses(spec), true, equivalence.TOLERANCE)
    assert right.verdict == "equal" and right.largest_difference is not None and right.largest_difference < 1e-6
    wrong = {
        "beta2": (changed(spec, "optimizer", betas=(0.9, 0.998)), None),
        "epsilon": (changed(spec, "optimizer", epsilon=1e-6), None),
        "rate": (changed(spec, "optimizer", learning_rate=spec.optimizer.learning_rate * 1.01), None),
        "decay on everything": (spec, decay_everything),
        "no decay": (changed(spec, "optimizer", weight_decay=0.0), None),
        "no clipping": (changed(spec, "options", clip="none"), None),
        "another order of the data": (replace(spec, seed=43), None),
    }
    unnoticed = [what for what, given in wrong.items() if not different(check.losses(*given, until=different))]
    assert not unnoticed


@pytest.mark.parametrize(
    "options",
    [
        {"clip": "value"},
        {"clip": "norm", "gradient_accumulation": 2},
        {"remove_padding": True},
        {"compile": True, "activation_checkpointing": True},
    ],
    ids=str,
)
def test_every_option_that_is_measured_is_the_reference(check: Check, options: dict[str, Any]) -> None:
    """Compiled, and without padding: sums in another order, and no more rounding than without."""
    spec = equivalence.settings(training_fixtures.spec(options=options), steps=20)
    found = equivalence.judged(check.losses(spec), check.expected(spec), 1e-6)
    assert found.verdict == "equal", found.reason
    if options.get("gradient_accumulation"):
        half = check.losses(changed(spec, "options", gradient_accumulation=1))
        assert equivalence.judged(half, found.loss, equivalence.TOLERANCE).verdict == "different"


def weights_in_bf16(rank: Any) -> None:
    def rounded(*_: Any) -> None:
        for parameter in rank.parameters:
            parameter.data.copy_(parameter.data.bfloat16())

    rank.update.register_step_post_hook(rounded)


def clips_what_is_scaled(rank: Any) -> None:
    rank.scaler.unscale_ = lambda update: None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precisions_are_fp32_but_for_their_rounding(check: Check, precision: str) -> None:
    asked = training_fixtures.spec(precision=precision, options={"clip": "global_norm"})
    spec, tolerance = equivalence.settings(asked), equivalence.LOWER[precision]
    true = check.losses(replace(spec, precision="fp32"))

    def verdict(spoil: Spoil = None) -> str:
        return equivalence.judged(check.losses(spec, spoil), true, tolerance).verdict

    assert verdict() == "equal"
    assert verdict(weights_in_bf16 if precision == "bf16" else clips_what_is_scaled) == "different"


def queries_and_keys_stay(rank: Any) -> None:
    """Put the weights of queries and keys back after every step."""
    every = rank.network.named_parameters()
    kept = [(one, one.detach().clone()) for name, one in every if ".query." in name or ".key." in name]

    def put_back(*_: Any) -> None:
        for parameter, value in kept:
            parameter.data.copy_(value)

    rank.update.register_step_post_hook(put_back)


def no_gradient_of_queries_and_keys(rank: Any) -> None:
    for name, parameter in rank.network.named_parameters():
        if ".query." in name or ".key." in name:
            parameter.register_hook(torch.zeros_like)


class InTf32(TorchDispatchMode):
    """Round what is multiplied as the units for TF32 do: 10 bits after the point."""

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        if any(name in str(function) for name in ("mm.", "addmm.", "bmm.", "scaled_dot_product")):
            given = [self.rounded(value) for value in given]
        return function(*given, **(named or {}))

    @staticmethod
    def rounded(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        bits = value.contiguous().view(torch.int32)
        return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def products_in_tf32(rank: Any) -> None:
    step = rank.step

    def rounded(batches: Any) -> Any:
        with InTf32():
            return step(batches)

    rank.step = rounded


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb", "sgd"])
def test_updates_show_what_losses_hide(check: Check, name: str) -> None:
    """An honest run is far from the tolerance on one side, and products rounded to TF32 on the other. Queries and keys
    that stay as they are, or only decay, are found by their names; with Adam and SGD the losses do not show it."""
    spec = equivalence.settings(training_fixtures.spec(optimizer={"name": name}))
    honest, losses = check.updates(spec)
    assert (honest.verdict, losses.verdict) == ("equal", "equal"), honest.reason
    assert len(honest.tensors) >= 38 and sum("query" in tensor for tensor in honest.tensors) == 4
    assert updates.UNKNOWN not in honest.left_out
    allowed = updates.TOLERANCE[name]
    assert all((one.difference or 0.0) <= one.tolerance - 0.75 * allowed for one in honest.tensors.values())

    parts = {tensor for tensor in honest.tensors if ".query." in tensor or ".key." in tensor}
    frozen, losses = check.updates(spec, queries_and_keys_stay)
    assert losses.verdict == "equal" or name in ("adamw", "lamb"), losses.reason
    assert frozen.verdict == "different" and frozen.worst in parts
    assert {tensor for tensor, one in frozen.tensors.items() if one.difference and one.difference > 0.5} == parts

    decayed, _ = check.updates(spec, no_gradient_of_queries_and_keys)
    assert decayed.verdict == "different" and decayed.worst in parts

    rounded, losses = check.updates(spec, products_in_tf32)
    assert losses.verdict == "equal", losses.reason
    assert rounded.verdict == "different" and rounded.difference is not None and rounded.difference > 1.8 * allowed


def scale_that_is_too_large(rank: Any) -> None:
    rank.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=2**31 - 1)
    rank.first_scale = rank.scaler.get_scale()


def test_steps_that_a_loss_scaler_skips_are_skipped_by_the_reference(check: Check) -> None:
    """So the losses that follow need no larger tolerance, and the updates are those of the same steps."""
    asked = training_fixtures.spec(precision="fp16")
    spec, tolerance = equivalence.settings(asked), equivalence.LOWER["fp16"]
    losses = check.losses(spec, scale_that_is_too_large)
    skipped = check.skipped
    assert skipped and skipped[0] == 1 and len(skipped) < 5, skipped
    skips = reference.train(spec, check.manifest, check.weights, asked=Asked(skipped=skipped))
    assert equivalence.judged(losses, skips.losses, tolerance).verdict == "equal"
    assert equivalence.judged(losses, check.expected(spec), tolerance).verdict == "different"
    found, _ = check.updates(spec, scale_that_is_too_large, skipped)
    assert found.verdict == "equal", found.reason
    unskipped, _ = check.updates(spec, scale_that_is_too_large)
    off = [(unskipped.tensors[name].difference or 0.0) / (one.difference or 1.0) for name, one in found.tensors.items()]
    assert min(off) > 1, "the updates are not those of the same steps"
