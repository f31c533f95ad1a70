"""The training runs that a configuration asks for: their specifications and their order."""

import base64
import dataclasses
import json
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from throughline import workloads
from throughline.files import UserError
from throughline.spec import RunSpec, Steps, Topology, canonical
from throughline.spec.part import is_stated
from throughline.study.benchmark import Benchmark, Options
from throughline.study.config import Config, block_name
from throughline.study.section import without_folders

PROTOCOL = 3
"""A developer raises this number when the way of measuring changes. Every run is then made again.

A workload whose way changed alone names a later number in its parameters (`one_call_since`). Its runs have that one, so
the next number for all is above it.
"""

CHANGED: dict[str, dict[str, Any]] = {
    "aa": {},
    "synthetic": {"data": "synthetic"},
    "no_gradient_sync": {"gradient_sync": False},
    "checkpoint": {"checkpoint": True},
    "reading": {"data": "reading"},
}
"""Map each extra that adds runs to the options that these runs change. `aa` changes nothing."""


def manifest(spec: RunSpec) -> str | None:
    """Return the path of the manifest of the data that a run reads, or None if its batches are synthetic."""
    if spec.corpus is None:
        return None
    return f"data/{spec.corpus.name}/{workloads.of(spec.model).folder(spec.parameters)}/manifest.json"


def typed(value: Any) -> Any:
    """Return the JSON values of a specification by its fields, with those types that depend on the model.

    Whatever is wrong stays as it is, for the error of the validation.
    """
    if not isinstance(value, Mapping) or not workloads.folder(str(value.get("model"))):
        return value
    kind: Any = workloads.of(value["model"]).parameters
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if isinstance(value.get("batch"), int) and value["batch"] < 1:
        raise ValueError(f"batch = {value['batch']}: at least 1")
    if missing := [name for name, field in fields.items() if name not in value and is_stated(field)]:
        raise ValueError(f"missing: {', '.join(missing)}")
    rest = {key: item for key, item in value.items() if key not in fields}
    rest["parameters"] = _validator(kind).validate_python({key: value[key] for key in fields if key in value})
    rest["options"] = _validator(Options).validate_python(value.get("options", {}))
    try:
        return rest | ({"topology": Topology.parse(rest["topology"])} if "topology" in rest else {})
    except (UserError, TypeError) as error:
        raise ValueError(str(error)) from None


@cache  # pydantic takes milliseconds to make one, and every record needs two
def _validator(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


Specification = Annotated[RunSpec, BeforeValidator(typed), PlainSerializer(RunSpec.values)]
"""A specification as a part of something that pydantic validates. In JSON it is flat (`RunSpec.values`)."""


def read_spec(text: str) -> RunSpec:
    """Return the specification in a JSON text; keys that are missing have their defaults. May raise ValidationError."""
    spec: RunSpec = TypeAdapter(Specification).validate_json(text)
    return spec


def read_specs(text: str) -> list[RunSpec]:
    """Return the specifications in a JSON list."""
    return TypeAdapter(list[Specification]).validate_json(text)


def expand(config: Config) -> list[RunSpec]:
    """Return every run that the configuration asks for, in the order in which they should be made.

    The first repeats of all runs come first, then the second repeats, and so on. Within a repeat, a run stands next to
    its derived runs that leave something out (`synthetic`, `no_gradient_sync`).
    """
    specs = [spec for name, block in config.benchmarks.items() for spec in _with_extras(config, name, block)]
    return sorted(specs, key=lambda spec: spec.repeat)


def _with_extras(config: Config, name: str, block: Benchmark) -> Iterable[RunSpec]:
    """Yield the runs of a block, each followed by its derived runs.

    The runs of `aa` come last, so that the time between two identical runs is like the time between two different
    configurations.
    """
    derived = {
        extra: _expand(config, f"{name}__{extra}", _changed(block, CHANGED[extra]))
        for extra in block.extras
        if extra in CHANGED and extra != "reading"
    }
    again = derived.pop("aa", ())
    for neighbours in zip(_expand(config, name, block), *derived.values(), strict=True):
        yield from neighbours
    yield from again
    if "reading" in block.extras:
        yield from _expand(config, f"{name}__reading", _reading(block))


def _reading(block: Benchmark) -> Benchmark:
    """Return the block whose runs read alone: once for each topology. They decide themselves how much they read."""
    precision, batches = next(iter(block.batch.items()))
    once = {"frameworks": block.frameworks[:1], "programs": [], "batch": {precision: batches[:1]}}
    steps = {"steps": Steps(warmup=0, timed=1), "job": None, "global_batch": None}
    return _changed(block, {**CHANGED["reading"], "gradient_accumulation": 1}).model_copy(update=once | steps)


def _changed(block: Benchmark, options: dict[str, Any]) -> Benchmark:
    return block.model_copy(update={"options": dataclasses.replace(block.options, **options)})


def _expand(config: Config, name: str, block: Benchmark) -> Iterable[RunSpec]:
    workload, section = workloads.of(block.model), config.data_of(block)
    parameters = config.parameters_of(block)
    read = section if block.options.data != "synthetic" else None
    corpus = read.identity(workload.folder(parameters)) if read else None
    if section is None:
        block = _changed(block, {"data": "synthetic"})
    if block.job:  # a job decides its own number of steps
        block = block.model_copy(update={"steps": Steps()})
    known = {field.name for field in dataclasses.fields(RunSpec)} - {"batch", "hosts"}
    of_block = {key: value for key, value in block if key in known}
    sizes = [(precision, batch) for precision, batches in block.batch.items() for batch in batches]
    repeats = range(1, block.repeats + 1)
    rows = [*block.frameworks, *block.programs]
    for (precision, batch), framework, topology, repeat in product(sizes, rows, block.topologies, repeats):
        options, program, on = block.options, None, Topology.parse(topology)
        hosts: Literal["simulated", "ssh"] | None = "ssh" if block.hosts else None  # their names decide no run
        if block.hosts == "simulated":
            hosts = "simulated" if on.nodes > 1 else None
        if framework in block.programs:
            program = config.programs[framework].of_run(batch, precision, on, block.steps)
        else:
            accumulation = block.size(on, batch).gradient_accumulation
            options = dataclasses.replace(options, gradient_accumulation=accumulation)
        yield RunSpec(
            benchmark=name,
            framework=framework,
            parameters=parameters,
            batch=batch,
            precision=precision,
            topology=on,
            repeat=repeat,
            hosts=hosts,
            corpus=None if program else corpus,
            program=program,
            protocol=max(PROTOCOL, getattr(parameters, "one_call_since", 0)),
            **{**of_block, "options": options},
        )


def switch(before: Any, after: Any) -> tuple[str, Any, Any] | None:
    """Return the one option that `after` has switched on: its name, its value in `before`, its value in `after`.

    `before` and `after` are two specifications or two summaries; in `before` the option has its default. Return None if
    they differ in more than this option, if one of them is an `aa` run, or if the option is one that the derived runs
    change to measure the parts of a step.
    """
    same = ("model", "parameters", "optimizer", "steps", "scaling", "global_batch")
    alike = all(getattr(before, name) == getattr(after, name) for name in same)
    off, on = vars(_options(before)), vars(_options(after))
    changed = [key for key in off if off[key] != on[key]]
    if not alike or len(changed) != 1 or any(name.endswith("__aa") for name in (before.benchmark, after.benchmark)):
        return None
    (key,) = changed
    is_derived = any(key in options for options in CHANGED.values())
    return None if is_derived or off[key] != getattr(Options(), key) else (key, off[key], on[key])


def _options(of: Any) -> Options:
    """Return the options that a specification's block or a summary states."""
    options: Options = of.block_options if isinstance(of, RunSpec) else of.options
    return options


def without_accumulation(accumulated: Any, other: Any) -> bool:
    """True if `other` takes one micro-batch a step where `accumulated` has a global batch, and is otherwise the same.

    Both are specifications or summaries. They may take other numbers of steps, because their steps differ in length.
    """
    same = ("model", "parameters", "optimizer", "scaling")
    alike = all(getattr(accumulated, name) == getattr(other, name) for name in same)
    stated = accumulated.global_batch is not None and other.global_batch is None
    return alike and stated and _options(accumulated) == _options(other) and "__" not in other.benchmark


def packed(config: Config) -> str:
    """Return the merged configuration as text for the jobs (handover.py), without names of hosts and paths."""
    sections = {name: section.without_places() for name, section in config.data_sections().items()}
    value = json.loads(config.model_dump_json(exclude={"accept", "compare"})) | sections
    for part in (value["runs"], *value["benchmarks"].values()):
        if isinstance(part["hosts"], list):
            part["hosts"] = f"{len(part['hosts'])} hosts"
        part["checkpoints"] = without_folders(part["checkpoints"])
    for program in value["programs"].values():
        program["folder"] = without_folders(program["folder"])
    return base64.b64encode(zlib.compress(canonical(value).encode())).decode()


def unpacked(text: str | None, benchmark: str) -> dict[str, Any] | None:
    """Return the part of a packed configuration that a benchmark's run came from.

    None if `text` is empty, or if the configuration has no block of the benchmark.
    """
    if not text:
        return None
    value: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    blocks, name = value["benchmarks"], block_name(benchmark)
    return {**value, "benchmarks": {name: blocks[name]}} if name in blocks else None
