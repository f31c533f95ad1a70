"""The training runs that a configuration asks for: their specifications (RunSpec), their order and their paths."""

import base64
import dataclasses
import json
import zlib
from collections.abc import Iterable
from itertools import product
from typing import Any, Literal

from pydantic import Field, SerializationInfo, TypeAdapter, model_serializer, model_validator

from throughline import workloads
from throughline.files import UserError
from throughline.study.benchmark import (
    Benchmark,
    FrameworkName,
    Job,
    Optimizer,
    Options,
    Runs,
    Scaling,
    Steps,
    TopologyName,
)
from throughline.study.config import Config, block_name
from throughline.study.section import DataIdentity, Name, PositiveInt, Precision, Section, Value, canonical
from throughline.topology import Layout, StepSize, Topology

PROTOCOL = 3
"""A developer raises this number when the way of measuring changes. Every run is then made again."""

CONFIGURATION = "THROUGHLINE_CONFIGURATION"
"""The environment variable that passes the merged configuration to a run.

As a parameter of the rule, every change of the configuration would make all runs again.
"""

CHANGED: dict[str, dict[str, Any]] = {"aa": {}, "synthetic": {"data": "synthetic"}, "noexchange": {"exchange": False}}
"""Map each extra that adds runs to the options that these runs change. `aa` changes nothing."""


class RunSpec(Section):
    """Everything that decides one run.

    Its canonical JSON leaves out values that equal their defaults, so that adding an option does not make finished
    runs again. In JSON, the workload's parameters stand on the same level as the other keys.
    """

    benchmark: Name
    framework: FrameworkName
    model: str
    parameters: dict[str, Value]
    batch_per_device: PositiveInt
    precision: Precision
    topology: TopologyName
    repeat: PositiveInt
    steps: Steps = Field(default_factory=Steps)
    seed: int = Runs.model_fields["seed"].default
    device: str = Runs.model_fields["device"].default
    threads: int = Runs.model_fields["threads"].default
    binding: Literal["none", "numa"] = Runs.model_fields["binding"].default
    network: bool | None = Runs.model_fields["network"].default
    hosts: Literal["simulated", "ssh"] | None = None
    optimizer: Optimizer = Field(default_factory=Optimizer)
    options: Options = Field(default_factory=Options)
    scaling: Scaling = "weak"
    job: Job | None = None
    corpus: DataIdentity | None = None
    protocol: int

    @model_validator(mode="before")
    @classmethod
    def _gather_parameters(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "parameters" in values or not workloads.folder(str(values.get("model"))):
            return values
        own = parameter_fields(values["model"])
        if missing := [name for name, field in own.items() if name not in values and _is_needed(field)]:
            raise ValueError(f"missing: {', '.join(missing)}")
        parameters = {name: values.get(name, field.default) for name, field in own.items()}
        return {key: value for key, value in values.items() if key not in parameters} | {"parameters": parameters}

    @model_serializer(mode="wrap")
    def _flatten_parameters(self, handler: Any, info: SerializationInfo) -> dict[str, Any]:
        own = parameter_fields(self.model)
        parameters = {
            name: value
            for name, value in self.parameters.items()
            if not info.exclude_defaults or _is_needed(own[name]) or value != own[name].default
        }
        values: dict[str, Any] = {}
        for key, value in handler(self).items():
            values |= parameters if key == "parameters" else {key: value}
        return values

    @property
    def workload(self) -> workloads.Workload:
        """The workload of the run's model: its framework-neutral file."""
        return workloads.of(self.model)

    @property
    def typed_parameters(self) -> Any:
        """The parameters as an object of the workload's class Parameters."""
        return self.workload.Parameters(**self.parameters)

    @property
    def manifest(self) -> str | None:
        """Path of the manifest of the data that the run reads, or None if its batches are made up."""
        if self.corpus is None:
            return None
        return f"data/{self.corpus.name}/{self.workload.folder(self.typed_parameters)}/manifest.json"

    @property
    def canonical(self) -> str:
        """The JSON that is passed as a parameter of the run's rule, with sorted keys and without defaults."""
        return canonical(self.model_dump(exclude_defaults=True))

    @property
    def layout(self) -> Layout:
        return self.options.layout

    @property
    def size(self) -> StepSize:
        """The number of samples in a step. Raises UserError if they cannot be divided equally among the replicas."""
        topology = Topology.parse(self.topology)
        return StepSize.of(topology, self.layout, self.batch_per_device, self.scaling, self.options.accumulate)

    @property
    def cell(self) -> str:
        """`<benchmark>/bz<b>_<precision>`. One summary holds all frameworks, topologies and repeats of a cell."""
        return f"{self.benchmark}/bz{self.batch_per_device}_{self.precision}"

    @property
    def summary(self) -> str:
        return f"results/{self.cell}.json"

    @property
    def record(self) -> str:
        return f"results/{self.cell}/{self.framework}/{self.topology}/run{self.repeat}.json"

    @property
    def log(self) -> str:
        return self.record.removesuffix(".json") + ".log"


def parameter_fields(model: str) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a model's Parameters, by name."""
    return {field.name: field for field in dataclasses.fields(workloads.of(model).Parameters)}


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    """True if a specification states this parameter even when its value is the default."""
    return field.default is dataclasses.MISSING or field.metadata["stated"]


def read_specs(text: str) -> list[RunSpec]:
    """Return the specifications in a JSON list. Raises UserError if the list is empty."""
    specs = TypeAdapter(list[RunSpec]).validate_json(text)
    if not specs:
        raise UserError("the list of run specifications is empty", next_step="give one for every framework")
    return specs


def expand(config: Config) -> list[RunSpec]:
    """Return every run that the configuration asks for, in the order in which they should be made.

    The first repeats of all runs come first, then the second repeats, and so on. Within a repeat, a run stands next to
    its derived runs that leave something out (`synthetic`, `noexchange`).
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
        if extra in CHANGED
    }
    again = derived.pop("aa", ())
    for neighbours in zip(_expand(config, name, block), *derived.values(), strict=True):
        yield from neighbours
    yield from again


def _changed(block: Benchmark, options: dict[str, Any]) -> Benchmark:
    return block.model_copy(update={"options": block.options.model_copy(update=options)})


def _expand(config: Config, name: str, block: Benchmark) -> Iterable[RunSpec]:
    workload, section = workloads.of(block.model), config.data_of(block)
    parameters = config.parameters_of(block)
    read = section if block.options.data == "real" else None
    corpus = read.identity(workload.folder(parameters)) if read else None
    if section is None:
        block = _changed(block, {"data": "synthetic"})
    if block.job:  # a job decides its own number of steps
        block = block.model_copy(update={"steps": Steps()})
    of_block = {key: value for key, value in block if key in RunSpec.model_fields and key != "hosts"}
    sizes = [(precision, batch) for precision, batches in block.batch.items() for batch in batches]
    repeats = range(1, block.repeats + 1)
    for (precision, batch), framework, topology, repeat in product(sizes, block.frameworks, block.topologies, repeats):
        yield RunSpec(
            benchmark=name,
            framework=framework,
            parameters=dataclasses.asdict(parameters),
            batch_per_device=batch,
            precision=precision,
            topology=topology,
            repeat=repeat,
            hosts=kind_of_hosts(block, topology),
            corpus=corpus,
            protocol=PROTOCOL,
            **of_block,
        )


def switch(before: Any, after: Any) -> tuple[str, Any, Any] | None:
    """Return the one option that `after` has switched on: its name, its value in `before`, its value in `after`.

    `before` and `after` are two specifications or two summaries; in `before` the option has its default. Return None if
    they differ in more than this option, if one of them is an `aa` run, or if the option is one that the derived runs
    change to measure the parts of a step.
    """
    same = ("model", "parameters", "optimizer", "steps", "scaling")
    alike = all(getattr(before, name) == getattr(after, name) for name in same)
    changed = [key for key, value in before.options if value != getattr(after.options, key)]
    if not alike or len(changed) != 1 or any(name.endswith("__aa") for name in (before.benchmark, after.benchmark)):
        return None
    key, value = changed[0], getattr(before.options, changed[0])
    derived = any(key in options for options in CHANGED.values())
    return None if derived or value != Options.model_fields[key].default else (key, value, getattr(after.options, key))


def kind_of_hosts(block: Benchmark, topology: str) -> Literal["simulated", "ssh"] | None:
    """Return the part of `runs.hosts` that decides a run: how hosts are reached, but not their names.

    So no record contains the name of a host, and a renamed host does not make runs again.
    """
    if block.hosts == "simulated":
        return "simulated" if Topology.parse(topology).nodes > 1 else None
    return "ssh" if block.hosts else None


def packed(config: Config) -> str:
    """Return the merged configuration as text for the variable CONFIGURATION, without names of hosts and paths."""
    sections = {name: section.without_places() for name, section in config.data_sections().items()}
    value = json.loads(config.model_dump_json()) | sections
    for part in (value["runs"], *value["benchmarks"].values()):
        if isinstance(part["hosts"], list):
            part["hosts"] = f"{len(part['hosts'])} hosts"
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
