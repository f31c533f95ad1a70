"""The numerical equivalence check: which benchmarks have one, what it covers, and how it is made.

A benchmark has an equivalence check if it compares frameworks, or if its options change how a model is divided among
its ranks. Every framework trains from the same weights, on the same batches in the same order, with the benchmark's
optimizer and options. We compare its losses in fp32 with a reference in double precision (reference.py), and those in
every other measured precision with its own losses in fp32.
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from throughline import frameworks, records, temporary, workloads
from throughline.checks import reference_process, updates
from throughline.files import UserError
from throughline.grouping import grouped
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.rank.data import Manifest
from throughline.records.checks import Comparison
from throughline.spec import Layout, Optimizer, Options, Precision, RunSpec, Schedule, Steps, Topology, values

STEPS = 50
TOLERANCE = 2e-5
"""The largest relative difference that is allowed between the loss of a step and the reference's loss.

fp32 has 24 bits, so an error in the last bit is 1.2e-7. Three such errors at every step in the same direction (in the
gradient, the moments and the weights) add up to 1.8e-5 in 50 steps. With bert-tiny, over all optimizers and kinds of
clipping, we measured at most 2e-7 in PyTorch (also compiled and without padding) and 6e-6 in MXNet. Wrong constants are
above the limit: a beta2 of 0.998 gives 3e-5 or more, and an epsilon of 1e-6 instead of 1e-8 gives 6e-5.
"""
LOWER_STEPS = 10
LOWER = {"tf32": 2**-11 / 3, "fp16": 2**-11 / 3, "bf16": 2**-8 / 3, "fp8": 2**-6 / 3}
"""The largest relative difference that is allowed between a loss in this precision and the same framework's in fp32.

It is a third of the rounding of one number (11 bits; bf16: 8 bits), because the loss is a mean over a dozen predictions
and their errors partly cancel. In 10 steps we measured at most 6e-4 in bf16 (bert-base with four samples; bert-tiny:
2e-4) and 3e-5 in fp16. Weights that are stored in bf16, which is wrong, give 1.6e-3. A product in fp8 rounds its
operands to 4 bits, but adds up many: a decoder with two layers gave at most 1.1e-3.
"""
SKIPPED_AT_MOST = 0.25
"""Largest share of the steps that a loss scaler may skip while it searches for its scale."""
RATE = {"adam": 1e-4, "adamw": 1e-4, "bertadam": 3e-5, "lamb": 3e-3, "sgd": 1e-6}
DECAY = 1.0
"""RATE is the learning rate of a check for each optimizer. DECAY is its weight decay, if the benchmark has one.

Adam keeps the benchmark's decay, because its effect is large enough. With a lower rate and decay, the effect of a wrong
constant within 50 steps would be smaller than the rounding: AdamW's default decay of 0.01 at a rate of 1e-4 changes
losses by 3e-6. With a higher rate, training itself amplifies the rounding: in AdamW to 1e-5 at a rate of 1e-3, and to
7e-3 at 1e-2. Batch norms amplify it more. With resnet-tiny and SGD, the rounding is 1e-6 at a rate of 1e-6, and 1e-5 at
ten times that rate. At 1e-6, a momentum of 0.899 instead of 0.9, a rate that is 1 % higher, or no decay change losses
by 5e-5 or more.
"""
MICRO_BATCHES = 2
"""Largest number of micro-batches in a step of a check. A sum over two takes the same code as a sum over hundreds."""
LIMITS = (
    "What is left is rounding: fp32 carries 24 bits (6e-8), sums of thousands of products differ in their order, and "
    "every step builds on the one before. Adam turns even the smallest gradients into steps of full size: of a weight "
    "whose second moment's root is near epsilon, one bit decides the direction."
)
GROUPS = 2
"""Groups of replicas in an equivalence check with `options.hybrid_shard_groups`."""
FP32: Precision = "fp32"
AS_MEASURED = (
    "clip", "gradient_accumulation", "compile", "activation_checkpointing", "remove_padding", "data", "sharding",
    "tensor_parallel",
)  # fmt: skip
RARE = ("hybrid_shard_groups", "expert_parallel")
"""Options that an equivalence check names only where a benchmark has them."""


def requests(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    """Map each benchmark that has an equivalence check to the runs of this check. Derived benchmarks have none."""
    own = (spec for spec in specs if "__" not in spec.benchmark and not spec.program)
    blocks = grouped(own, lambda spec: spec.benchmark)
    return {name: _request(block) for name, block in blocks.items() if _needs_check(block)}


def _needs_check(block: Sequence[RunSpec]) -> bool:
    first, workload = block[0], workloads.of(block[0].model)
    several = len({spec.framework for spec in block}) > 1
    split = any(getattr(first.parameters, name) != value for name, value in workloads.whole(first.model).items())
    own_gradient_sync = max(spec.size.replicas for spec in block) > 1 and workload.own_gradient_sync(first)
    return several or split or own_gradient_sync or first.options.layout != Layout()


def _request(block: Sequence[RunSpec]) -> list[RunSpec]:
    """Return the runs of a benchmark's equivalence check.

    Every framework runs in fp32 on one replica of the model and, if the benchmark uses several replicas, on two. With
    sharding it runs on two only, because one replica has nothing to shard; for groups and experts see `_spread`. Every
    other measured precision runs on the smaller of these topologies. The batch is the benchmark's smallest batch of a
    replica (in fp32, if the benchmark measures fp32), or the larger one that the workload needs. The largest topology
    comes last.
    """

    def order(spec: RunSpec) -> tuple[bool, int, int]:
        return spec.precision != FP32, spec.size.batch_per_replica, -spec.options.gradient_accumulation

    base, most = min(block, key=order), max(spec.size.replicas for spec in block)
    alone = most == 1 or base.options.layout.sharding == "none"
    batch = max(base.size.batch_per_replica, workloads.of(base.model).check_batch)
    base = replace(base, batch=batch, scaling="weak", global_batch=None, repeat=1, hosts=None)
    others = [precision for precision in dict.fromkeys(spec.precision for spec in block) if precision != FP32]
    counts = _spread(base.options.layout, most) or [1] * alone + [2] * (most > 1)
    topologies = {replicas: Topology(1, replicas * base.options.tensor_parallel) for replicas in counts}
    return [
        replace(base, framework=framework, topology=topologies[replicas], precision=precision)
        for framework in dict.fromkeys(spec.framework for spec in block)
        for replicas in counts
        for precision in (FP32, *(others if replicas == counts[0] else ()))
    ]


def _spread(layout: Layout, most: int) -> list[int]:
    """Return the numbers of replicas of a check whose replicas share experts, alone and with others that hold the same,
    or form groups; none if they do neither."""
    if layout.hybrid_shard_groups != 1:
        return [GROUPS * max(2, layout.expert_parallel)]
    sharing = layout.expert_parallel
    return [sharing] + [2 * sharing] * (most > sharing) if sharing > 1 else []


def settings(spec: RunSpec, steps: int | None = None) -> RunSpec:
    """Return the specification of an equivalence check's run: the measured run without its random parts, and with a
    learning rate and a decay whose effect is visible within a few steps (RATE and DECAY)."""
    optimizer, options = spec.optimizer, spec.options
    course = _within_a_check(optimizer.schedule)
    mean = math.fsum(course.share(step) for step in range(1, STEPS + 1)) / STEPS
    rate, decay = float(f"{RATE[optimizer.name] / mean:.3g}"), optimizer.weight_decay
    if decay and optimizer.name != "adam":  # Adam's decay is part of the gradient, so its effect is visible
        decay = DECAY
    # An equivalence check has other steps than the measured run, whose length decides about `compile: auto`.
    compiled = False if options.compile == "auto" and frameworks.ends_soon(spec) else options.compile
    return replace(
        spec,
        repeat=1,
        job=None,
        steps=Steps(warmup=0, timed=steps or (STEPS if spec.precision == "fp32" else LOWER_STEPS)),
        parameters=replace(spec.parameters, **workloads.of(spec.model).check_parameters(spec)),
        optimizer=replace(optimizer, learning_rate=rate, weight_decay=decay, schedule=course),
        options=replace(
            options,
            dropout=0.0,
            gradient_sync=True,
            image_decoder="pillow",
            gradient_accumulation=min(options.gradient_accumulation, MICRO_BATCHES),
            compile=compiled,
            hybrid_shard_groups=1 if options.hybrid_shard_groups == 1 else GROUPS,
        ),
    )


def _within_a_check(schedule: Schedule) -> Schedule:
    """Return the schedule shortened to the steps of an equivalence check. The warm-up keeps its share of the steps."""
    total = schedule.total_steps or max(schedule.warmup_steps, STEPS)
    most = STEPS - 1 if schedule.total_steps else STEPS // 2
    warmup = min(most, math.ceil(schedule.warmup_steps * STEPS / total))
    return replace(schedule, warmup_steps=warmup, total_steps=schedule.total_steps and STEPS)


def covers(specs: Sequence[RunSpec]) -> list[str]:
    """Return sentences that say what a check with these runs covers, and how they differ from the measured runs."""
    measured, workload, checked = specs[0], workloads.of(specs[0].model), settings(specs[0])
    topologies = ", ".join(dict.fromkeys(str(spec.topology) for spec in specs if spec.precision == "fp32"))
    lower = {spec.precision: spec.topology for spec in specs if spec.precision != "fp32"}
    now, then = checked.options, measured.options
    named = [*AS_MEASURED, *(name for name in RARE if getattr(then, name) != getattr(Options(), name))]
    same = [name for name in named if getattr(now, name) == getattr(then, name)]
    as_measured = [measured.optimizer.name, *(f"{name} {json.dumps(getattr(then, name))}" for name in same)]
    changes = checked.optimizer.schedule != measured.optimizer.schedule
    return [
        f"fp32 against the reference: {STEPS} steps on {topologies} with {measured.batch} {workload.unit} a replica",
        *(
            f"{precision} against fp32 of the same framework: {LOWER_STEPS} steps on {topology}"
            for precision, topology in lower.items()
        ),
        f"as measured: {', '.join(as_measured)}".replace('"', ""),
        *(
            f"{name}: {value} instead of {getattr(measured.parameters, name)}"
            for name, value in workload.check_parameters(measured).items()
        ),
        *_differences("optimizer", checked.optimizer, replace(measured.optimizer, schedule=checked.optimizer.schedule)),
        *[f"optimizer.schedule: its whole course in {STEPS} steps"] * changes,
        *_differences("options", now, then),
    ]


def _differences(section: str, *parts: Optimizer | Options) -> list[str]:
    checked, measured = ({name: json.dumps(value).strip('"') for name, value in values(part).items()} for part in parts)
    changed = (name for name in checked if checked[name] != measured[name])
    return [f"{section}.{name}: {checked[name]} instead of {measured[name]}" for name in changed]


def check(specs: Sequence[RunSpec], manifest: Path | None, pythons: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Make the equivalence check and return the content of equivalence.json. `folder` gets the records and logs.

    pythons: the interpreters of the frameworks that have their own environment.
    """
    first = settings(specs[0])
    data = Manifest.of_run(first, manifest) if manifest else None
    with temporary.folder() as work:
        runs = _Runs(data, pythons, folder, work / "weights.npz")
        for spec in specs:
            runs.compare(settings(spec))
    clipped = sum(trained.clipped_steps for trained in runs.expected.values())
    idle = [f"options.clip: {first.options.clip} had nothing to clip in these steps"]
    return {
        "schema": records.SCHEMA,
        "benchmark": first.benchmark,
        "model": first.model,
        **values(first.parameters),
        "batch": first.batch,
        "covers": covers(specs) + idle * (first.options.clip != "none" and bool(runs.expected) and not clipped),
        "steps": STEPS,
        "tolerance": TOLERANCE,
        "reference": "one process, float64, the mean of the replicas' means",
        "limits": LIMITS,
        "optimizer": values(first.optimizer),
        "reference_loss": {str(replicas): _finite(trained.losses) for replicas, trained in runs.expected.items()},
        "frameworks": _dumped(runs.fp32),
        "precisions": _dumped(runs.lower),
    }


def _dumped(compared: Mapping[str, Mapping[str, Comparison]]) -> dict[str, Any]:
    return {name: {key: each.model_dump() for key, each in of_name.items()} for name, of_name in compared.items()}


@dataclass(frozen=True)
class _Runs:
    """The runs of one equivalence check, which start from the same weights."""

    data: Manifest | None
    pythons: Mapping[str, str]
    folder: Path
    weights: Path
    expected: dict[int, reference_process.Trained] = field(default_factory=dict)
    """Map the number of replicas to the result of the reference."""
    fp32: dict[str, dict[str, Comparison]] = field(default_factory=dict)
    """Map framework and topology to the comparison of fp32 with the reference."""
    lower: dict[str, dict[str, Comparison]] = field(default_factory=dict)
    """Map framework and precision to the comparison of this precision with fp32."""

    def compare(self, spec: RunSpec) -> None:
        """Make a run and compare its losses. The run in fp32 comes before those in other precisions."""
        if spec.precision == "fp32":
            self.fp32.setdefault(spec.framework, {})[str(spec.topology)] = self._against_reference(spec)
        else:
            in_fp32 = self.fp32[spec.framework][str(spec.topology)]
            self.lower.setdefault(spec.framework, {})[spec.precision] = self._against_fp32(spec, in_fp32)

    def _against_reference(self, spec: RunSpec) -> Comparison:
        no_form = f"the reference is computed in PyTorch, and {spec.model} has no implementation there"
        workload = workloads.of(spec.model)
        lacking = workload.lacks_reference(spec) if "torch" in workload.libraries else no_form
        if lacking:
            return Comparison(verdict="unsupported", reason=lacking)
        if not self.weights.exists():
            reference_process.initial(spec, *self._shared)
        expected = None if _is_refused(spec) else self._reference(spec)
        record = self._ran(spec, expected and self._updates(spec))
        if isinstance(record, Comparison):
            return record
        expected = expected or self._reference(spec)
        return _with_updates(spec, judged(means(record), expected.losses, TOLERANCE), record, expected)

    def _against_fp32(self, spec: RunSpec, in_fp32: Comparison) -> Comparison:
        if len(in_fp32.loss) < spec.steps.timed:
            return Comparison(verdict=in_fp32.verdict, reason=f"its run in fp32: {in_fp32.reason}")
        record = self._ran(spec, self._updates(spec))
        if isinstance(record, Comparison):
            return record
        if record["scaler_skipped_steps"] > SKIPPED_AT_MOST * spec.steps.timed:
            return Comparison(verdict="invalid", reason=record["reason"])
        rounding = LOWER[spec.precision] * workloads.of(spec.model).rounding
        if not record["scaler_skipped_steps"]:
            compared = judged(means(record), in_fp32.loss[: spec.steps.timed], rounding)
            return _with_updates(spec, compared, record, self.expected[spec.size.replicas])
        return self._with_skipped_steps(spec, record["equivalence"]["skipped_steps"], rounding)

    def _with_skipped_steps(self, spec: RunSpec, skipped: Sequence[int], rounding: float) -> Comparison:
        """Compare a run whose loss scaler skips steps with a reference that skips them too. The run is made again,
        because a rank compares its updates with those of one reference."""
        updates = self.weights.with_name(f"updates_{spec.size.replicas}_without_{'_'.join(map(str, skipped))}.npz")
        asked = reference_process.Asked({str(spec.steps.timed): str(updates)}, skipped)
        expected = reference_process.train(spec, *self._shared, asked)
        record = self._ran(spec, updates)
        if isinstance(record, Comparison):
            return record
        again = record["equivalence"]["skipped_steps"]
        if again != skipped:
            varies = f"the loss scaler skipped the steps {skipped} in one run, and {again} in the next"
            return Comparison(verdict="invalid", reason=varies)
        compared = _with_updates(spec, judged(means(record), expected.losses, rounding), record, expected)
        return compared.model_copy(update={"skipped_steps": skipped})

    @property
    def _shared(self) -> tuple[Path | None, Path, str]:
        return self.data.path if self.data else None, self.weights, f"{self.folder}.json"

    def _updates(self, spec: RunSpec) -> Path:
        return self.weights.with_name(f"updates_{spec.size.replicas}_{spec.steps.timed}.npz")

    def _reference(self, spec: RunSpec) -> reference_process.Trained:
        """Return the reference of a run in fp32, which leaves its updates for runs in lower precisions too."""
        replicas = spec.size.replicas
        if replicas not in self.expected:
            several = sorted({spec.steps.timed, min(LOWER_STEPS, spec.steps.timed)})
            files = {str(steps): str(self._updates(replace(spec, steps=Steps(0, steps)))) for steps in several}
            asked = reference_process.Asked(files)
            self.expected[replicas] = reference_process.train(spec, *self._shared, asked)
        return self.expected[replicas]

    def _ran(self, spec: RunSpec, updates: Path | None) -> dict[str, Any] | Comparison:
        """Run `spec` and return its record. Return a Comparison with the reason if its losses cannot be compared."""
        precision = "" if spec.precision == "fp32" else f"_{spec.precision}"
        path = self.folder / f"{spec.framework}_{spec.topology}{precision}.json"
        manifest, weights, part_of = self._shared
        python = self.pythons.get(spec.framework, sys.executable)
        request = RunRequest(spec, path, path.with_suffix(".log"), manifest, python)
        request = replace(request, weights=weights, updates=updates, part_of=part_of)
        try:
            record = launcher.run(request)
        except launcher.Stopped:  # it says nothing about the framework
            raise
        except (UserError, ValueError) as error:  # ValueError: the reports of the ranks do not make a valid record
            print(f"{path}: {error}", file=sys.stderr)
            return Comparison(verdict="failed", reason=error.what if isinstance(error, UserError) else str(error))
        if record["status"] in ("oom", "unsupported"):
            return Comparison(verdict=record["status"], reason=record["reason"])
        if any(len(rank["loss"]) != spec.steps.timed for rank in record["ranks"]):
            return Comparison(verdict="invalid", reason=record["reason"])
        return record


def _is_refused(spec: RunSpec) -> bool:
    """True if the framework or the implementation lacks a feature of the run, so no reference is needed for it."""
    framework = frameworks.of(spec.framework)
    offered = workloads.of(spec.model).libraries.get(framework.library, frozenset())
    return not set(frameworks.needs(spec)) <= offered & framework.features


def _with_updates(
    spec: RunSpec, losses: Comparison, record: Mapping[str, Any], expected: reference_process.Trained
) -> Comparison:
    """Return the comparison of losses together with that of updates. A run is only equal if both are."""
    judgement = updates.judged(record.get("equivalence"), spec, expected.without_gradient, expected.with_gradient)
    change: dict[str, Any] = {"updates": judgement}
    if losses.verdict == "equal" and judgement.verdict == "different":
        change |= {"verdict": "different", "reason": judgement.reason}
    return losses.model_copy(update=change)


def means(record: Mapping[str, Any]) -> list[float]:
    """Return the mean of all ranks' losses at every step. It is NaN if one of them is not finite."""
    ranks = ([math.nan if loss is None else loss for loss in rank["loss"]] for rank in record["ranks"])
    return [math.fsum(step) / len(step) for step in zip(*ranks, strict=True)]


def _finite(losses: Iterable[float]) -> list[float]:
    """Return the losses before the first one that is not finite."""
    return list(takewhile(math.isfinite, losses))


def judged(losses: Sequence[float], expected: Sequence[float], tolerance: float) -> Comparison:
    """Compare the losses of a run's steps with the expected losses."""
    finite = _finite(losses)
    right = len(_finite(expected))
    if right < len(expected):
        diverges = f"the reference's own loss is not finite from step {right + 1} on: this training diverges"
        return Comparison(verdict="invalid", reason=diverges, loss=finite)
    difference = [abs(loss - true) / abs(true) for loss, true in zip(finite, expected, strict=False)]
    largest = max(difference, default=None)
    at_step = difference.index(largest) + 1 if largest is not None else None
    reason = None
    if len(finite) < len(losses):
        at_step = len(finite) + 1
        reason = f"its loss is not finite from step {at_step} on"
    elif largest is not None and largest > tolerance:
        reason = f"its loss is off by {largest:.1e}, and {tolerance:.1e} is tolerated"
    return Comparison(
        verdict="different" if reason else "equal",
        reason=reason,
        loss=finite,
        difference=difference,
        largest_difference=largest,
        tolerance=tolerance,
        at_step=at_step,
    )
