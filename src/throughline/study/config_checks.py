"""Mistakes that involve several keys of the configuration. Each is a line that begins with the key to correct."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from throughline import frameworks, versions, workloads
from throughline.files import UserError
from throughline.spec import Options, RunSpec, StepSize, Topology
from throughline.spec.program import DECIDES
from throughline.spec.topology import nearest
from throughline.study.accept_section import OfProgram
from throughline.study.benchmark import Benchmark
from throughline.study.config_errors import allowed

if typing.TYPE_CHECKING:
    from throughline.study.config import Config


def mistakes(config: Config) -> Iterator[str]:
    """Yield the mistakes of a configuration whose single values are right."""
    for name, section in config.data_sections().items():
        yield from (f"{name}.{mistake}" for mistake in section.mistakes())
    for name in config.imports.keys() & config.benchmarks.keys():
        yield f"imports.{name}: a benchmark has this name and writes into results/{name}/; choose another"
    for name, imported in config.imports.items():
        if Path(imported.logs).resolve() == Path("logs").resolve():
            yield f"imports.{name}.logs = {imported.logs!r}: Snakemake writes its own logs there; take another folder"
    train = config.accept.train
    if isinstance(train, str) and train not in config.benchmarks:
        yield f"accept.train = {train!r}: {allowed(train, list(config.benchmarks))}"
    elif isinstance(train, str) and not config.benchmarks[train].frameworks:
        yield f"accept.train = {train!r}: it measures programs alone; write accept.train: {{program: NAME}}"
    elif isinstance(train, OfProgram) and train.program not in config.programs:
        choices = list(config.programs) or ["none: add programs"]
        yield f"accept.train.program = {train.program!r}: {allowed(train.program, choices)}"
    for name in config.programs.keys() & set(frameworks.NAMES):
        yield f"programs.{name}: a framework has this name; choose another"
    for name, block in config.benchmarks.items():
        where = f"benchmarks.{name}"
        if "__" in name:
            yield f"{where}: two underscores in a row are kept for derived runs, such as <name>__aa"
        if block.enough and block.enough > block.repeats:
            yield f"{where}.enough = {block.enough}: there are {block.repeats} repeats; take at most as many"
        if block.model == DECIDES and not block.programs:
            models = allowed(DECIDES, list(workloads.models()), "docs/reference/workloads.md")
            yield f"{where}.model = {DECIDES!r}: {models}"
            continue
        for check in (_model, _options, _frameworks, _sizes):
            yield from (f"{where}.{mistake}" for mistake in check(block))
        yield from (f"{where}.{mistake}" for mistake in _programs(config, block))
        if set(block.programs) <= config.programs.keys():
            yield from (f"{where}.{mistake}" for mistake in _data(config, block))
        if block.convergence:
            yield from (f"{where}.{mistake}" for mistake in _convergence(config, block))
            yield from (f"{where}.convergence.begin_from{mistake}" for mistake in _begin_from(config, name, block))


def _data(config: Config, block: Benchmark) -> Iterator[str]:
    """The data lack what the keys of the model ask of them, such as a sequence length."""
    try:
        config.parameters_of(block)
    except ValueError as error:
        yield str(error)


def _model(block: Benchmark) -> Iterator[str]:
    """The model lacks what a key asks of it."""
    workload, model = workloads.of(block.model), block.model
    if block.options.image_decoder != Options.image_decoder and workload.data != "images":
        yield f"options.image_decoder: {model} reads no pictures; remove the key"
    if block.options.data == "reading":
        yield "options.data = reading: nothing would be trained; write extras: [reading]"
    if "reading" in block.extras and workload.data is None:
        yield f"extras: reading: {model} reads no data; remove the extra"
    for extra in ("synthetic", "no_gradient_sync", "checkpoint"):
        if extra in block.extras and not workload.trains:
            yield f"extras: {extra}: {model} trains nothing; remove the extra"
    if "fp8" in block.batch and not _any_has("fp8", workload):
        can = ", ".join(name for name in workloads.models() if _any_has("fp8", workloads.of(name)))
        yield f"batch.fp8: {model} has no fp8; these have: {can}"
    if not workload.has_batch:
        if any(batches != [1] for batches in block.batch.values()):
            precisions = ", ".join(f"{precision}: [1]" for precision in block.batch)
            yield f"batch: a call of {model} has no batch; write batch: {{{precisions}}}"
        for key in ("scaling", "global_batch"):
            if getattr(block, key) != getattr(RunSpec, key):
                yield f"{key}: a call of {model} has no batch that devices could share; remove the key"
    for key in ("tensor_parallel", "expert_parallel"):
        ranks = getattr(block.options, key)
        if ranks == 1 or not _any_has(key, workload):
            continue  # without the feature, the run ends as `unsupported` and says why
        parts = workload.splits(model) if key == "tensor_parallel" else {"experts": workload.experts(model)}
        if any(count % ranks for count in parts.values()):
            has = " and ".join(f"{count:,} {part}" for part, count in parts.items())
            most = math.gcd(*parts.values())
            possible = ", ".join(str(number) for number in range(1, most + 1) if most % number == 0)
            yield f"options.{key} = {ranks}: {model} has {has}, which divide by {possible}"


def _any_has(feature: str, workload: workloads.Workload[typing.Any]) -> bool:
    """True if the workload has the feature in at least one library."""
    return any(feature in features for features in workload.libraries.values())


def _options(block: Benchmark) -> Iterator[str]:
    yield from (f"optimizer.{mistake}" for mistake in block.optimizer.mistakes())
    yield from (f"options.{mistake}" for mistake in block.options.mistakes())
    yield from (f"steps.{mistake}" for mistake in block.steps.mistakes())
    if block.options.fp8_scaling != Options.fp8_scaling and "fp8" not in block.batch:
        yield f"options.fp8_scaling = {block.options.fp8_scaling}: `batch` has no fp8; remove the key"
    if block.global_batch and block.options.gradient_accumulation != Options.gradient_accumulation:
        yield (
            f"options.gradient_accumulation = {block.options.gradient_accumulation}: global_batch = "
            f"{block.global_batch} decides how many micro-batches a step has; remove one of the two keys"
        )


def _programs(config: Config, block: Benchmark) -> Iterator[str]:
    """The programs of a block do not exist, do not count alike, or would not take what the block varies."""
    if unknown := [name for name in block.programs if name not in config.programs]:
        yield f"programs = {unknown[0]!r}: {allowed(unknown[0], list(config.programs) or ['none: add programs'])}"
        return
    measured = {name: config.programs[name] for name in block.programs}
    counted = {section.unit for section in measured.values()}
    counted |= {workloads.of(block.model).unit} if block.frameworks else set()
    if len(counted) > 1:
        yield f"programs: its rows count {' and '.join(sorted(counted))}; state `unit` and `per_step` alike"
    batches = [batch for batches in block.batch.values() for batch in batches]
    varied = {
        "batch": len(set(batches)) > 1,
        "precision": len(block.batch) > 1,
        "world": len({Topology.parse(topology).world for topology in block.topologies}) > 1,
    }
    fixed = {"batch": DECIDES in batches, "precision": DECIDES in block.batch}
    for name, section in measured.items():
        used = section.placeholders
        told = used | ({"world"} if section.start == "rank" or used & {"nodes", "devices", "hostfile"} else set())
        for key in (key for key, several in varied.items() if several and key not in told):
            lacks = "{world} and {devices}; or write start: rank" if key == "world" else f"{{{key}}}"
            yield f"programs: {name} would not know the {key}: its command lacks {lacks}"
        for key in (key for key, unknown in fixed.items() if unknown and key in used):
            such = "batch: {bf16: [12]} (bench: --batch 12)"
            yield f"batch: {name} takes {{{key}}}, and `batch` states none; write such as {such}"
        for topology in block.topologies if not (fixed["batch"] and "batch" in used) else ():
            try:
                section.of_run(batches[0], next(iter(block.batch)), Topology.parse(topology), block.steps)
            except ValueError as error:
                yield f"programs: {name}: per_step: {error} (topology {topology})"
                break
    if measured and not block.frameworks:
        for extra in (extra for extra in block.extras if extra != "aa"):
            yield f"extras: {extra}: it changes a framework of ours, and this block measures programs; `aa` is possible"
    if measured and (block.convergence or block.job):
        yield "programs: convergence and job are for frameworks of ours; give the program a block of its own"


def _frameworks(block: Benchmark) -> Iterator[str]:
    if not (block.frameworks or block.programs):
        yield "frameworks: a block measures at least one framework or program"
    for position, framework in enumerate(block.frameworks):
        where = f"frameworks.{position} = {framework!r}"
        if versions.base(framework) not in frameworks.NAMES:
            yield f"{where}: {allowed(framework, frameworks.NAMES)}"
            continue
        try:
            versions.pins(framework)
        except UserError as error:
            yield f"{where}: {error.what}; {error.next_step}"


def _sizes(block: Benchmark) -> Iterator[str]:
    """A step cannot have its size, because devices, batch or samples do not divide equally."""
    options, sizes = block.options, []
    if not block.frameworks:
        return
    for topology, (precision, batches) in product(block.topologies, block.batch.items()):
        for batch in batches:
            if not isinstance(batch, int) or precision == DECIDES:
                yield f"batch: {precision}: {batch}: a framework needs both a precision and a size"
                return
            try:
                at_once = StepSize.of(
                    Topology.parse(topology), options.layout, batch, block.scaling, options.gradient_accumulation
                )
            except UserError as error:
                yield f"batch.{precision}: {error.what}; {error.next_step}"
                continue
            sizes.append((f"{precision} batch {batch} on {topology}", at_once))
            taken = block.global_batch or at_once.global_batch
            if block.job and block.job.samples % taken:
                yield (
                    f"job.samples = {block.job.samples}: a step of batch {batch} on {topology} takes {taken} samples; "
                    "choose a multiple of that, so that all steps are alike"
                )
    samples = block.global_batch
    if samples is not None and (wrong := [entry for entry in sizes if samples % entry[1].samples_at_once]):
        where, size = wrong[0]
        yield (
            f"global_batch = {samples}: {where} takes {size.samples_at_once} samples at once; the nearest that every "
            f"batch and topology of this block divides: {nearest([size for _, size in sizes], samples)}"
        )
    for topology in block.predicted:
        for batch in dict.fromkeys(batch for batches in block.batch.values() for batch in batches):
            try:
                block.size(Topology.parse(topology), batch)
            except UserError as error:
                yield f"predict: {topology}: {error.what}; {error.next_step}"


def _convergence(config: Config, block: Benchmark) -> Iterator[str]:
    workload, section = workloads.of(block.model), config.data_of(block)
    if section is not None:
        yield from section.held_out_mistakes(str(workload.data))
    if block.options.data != "real" or not block.options.gradient_sync:
        yield "convergence: it needs options.data: real and options.gradient_sync: true, their defaults"
    if block.job:
        yield "job: a convergence check has steps of its own; give it a block without job"
    if not workload.held_out:
        yield f"convergence: {block.model} has no figures of held-out data"


def _begin_from(config: Config, name: str, block: Benchmark) -> Iterator[str]:
    """A convergence check cannot begin with the weights of the check that it names."""
    first = block.convergence and block.convergence.begin_from
    if not first:
        return
    if first not in config.benchmarks:
        yield f" = {first!r}: {allowed(first, [other for other in config.benchmarks if other != name])}"
        return
    other, passed = config.benchmarks[first], {name}
    if other.convergence is None:
        yield f" = {first!r}: it has no check whose weights could be taken; set benchmarks.{first}.convergence"
    if other.model != block.model:
        yield f" = {first!r}: it trains {other.model}, and this one {block.model}; weights fit only the same model"
    for key in ("frameworks", "batch"):
        if missing := [value for value in getattr(block, key) if value not in getattr(other, key)]:
            yield f" = {first!r}: it is not checked with {', '.join(missing)}; add that to benchmarks.{first}.{key}"
    while first in config.benchmarks and (before := config.benchmarks[first].convergence):
        if first in passed:
            yield f": {name} would begin with its own weights"
            return
        passed.add(first)
        first = before.begin_from or ""
