"""Everything that decides one run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from throughline import versions
from throughline.spec.job import EpochsJob
from throughline.spec.optimizer import Optimizer
from throughline.spec.options import Options, Steps
from throughline.spec.part import Part, changed, read, values
from throughline.spec.program import DECIDES, Program
from throughline.spec.topology import Layout, StepSize, Topology

NAME = r"[a-z][a-z0-9_]*"
"""A regular expression for the names of benchmarks and data."""
NumberFormat = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
Precision = Literal[NumberFormat, "program"]
"""`program`: the program that a run measures decides it."""
Batch = int | Literal["program"]
Scaling = Literal["weak", "strong"]
if TYPE_CHECKING:  # `RunSpec` alone means a specification of any workload
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)
else:
    from typing import TypeVar

    P = TypeVar("P")


def cell_name(benchmark: str, batch: Batch, precision: str, *where: object) -> str:
    """Return a cell in words: `bert bz32 fp32 torch 1n2g`; without batch and precision if a program decides them."""
    size = [word for word, value in ((f"bz{batch}", batch), (precision, precision)) if value != DECIDES]
    return " ".join(map(str, [benchmark, *size, *where]))


@dataclass(frozen=True)
class DataIdentity(Part):
    """The name and the digest of the data that a run reads. Both are known before the data are made."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class RunSpec(Part, Generic[P]):
    """Everything that decides one run.

    batch: samples of each replica, or of all replicas together if `scaling` is strong, or `program` if the measured
    program decides; global_batch: what `options.gradient_accumulation` follows from, None if the block states that key
    itself; corpus: the data that the run reads, None if its batches are synthetic; hosts: how nodes are reached,
    without their names; protocol: the way of measuring; program: what is measured if it is no framework of ours, and
    `framework` is then its name; content: what ranks get of the files that the parameters name by digest.
    """

    benchmark: str = field(metadata={"pattern": rf"^{NAME}$"})
    framework: str = field(metadata={"pattern": f"^{versions.NAME}$"})
    model: str
    parameters: P
    batch: Batch
    precision: Precision
    topology: Topology
    repeat: int = field(metadata={"ge": 1})
    steps: Steps = Steps()
    seed: int = 42
    device: str = "auto"
    threads: int = field(default=1, metadata={"ge": 1})
    decode_workers: int | None = field(default=None, metadata={"ge": 1})
    binding: Literal["none", "numa"] = "none"
    network: bool | None = None
    hosts: Literal["simulated", "ssh"] | None = None
    optimizer: Optimizer = Optimizer()
    options: Options
    scaling: Scaling = "weak"
    global_batch: int | None = field(default=None, metadata={"ge": 1})
    job: EpochsJob | None = None
    corpus: DataIdentity | None = None
    protocol: int
    program: Program | None = None
    content: Any = None

    @classmethod
    def of(cls, value: Mapping[str, Any], parameters: type[P], options: type[Options]) -> RunSpec[P]:
        """Return the specification from its JSON values and the classes of its parameters and options. Raise ValueError
        if a key is missing or unknown."""
        names = {declared.name for declared in fields(cast(Any, parameters))}
        core = {name: content for name, content in value.items() if name not in names}
        core |= {"parameters": read(parameters, {name: content for name, content in value.items() if name in names})}
        core |= {"options": read(options, core.get("options", {}))}
        if "topology" in core:
            core["topology"] = Topology.parse(core["topology"])
        return read(cls, core)

    def values(self) -> dict[str, Any]:
        """Return the specification as JSON values, with its defaults; parameters stand beside the other keys."""
        return _flat(values(self))

    def changed(self) -> dict[str, Any]:
        """Return it without values that equal their defaults, so that a new option makes no finished run again."""
        return _flat({name: value for name, value in changed(self).items() if name != "options" or value})

    @property
    def canonical(self) -> str:
        """The JSON that is passed as a parameter of the run's rule, with sorted keys and without defaults."""
        return canonical(self.changed())

    @property
    def batch_size(self) -> int:
        """`batch` as a number, which a framework of ours always has. Raises ValueError if a program decides it."""
        return int(self.batch)

    @property
    def is_one_call(self) -> bool:
        """True if a step is one call that all ranks make together (the parameters' `one_call_since`): it counts
        once."""
        return hasattr(self.parameters, "one_call_since")

    @property
    def size(self) -> StepSize:
        """The number of samples in a step. Raises UserError if they cannot be divided equally among the replicas. The
        step of a program counts as that of one replica."""
        if self.program:
            return StepSize(1, self.program.per_step)
        layout = Layout(tensor_parallel=self.topology.world) if self.is_one_call else self.options.layout
        return StepSize.of(self.topology, layout, self.batch_size, self.scaling, self.options.gradient_accumulation)

    @property
    def block_options(self) -> Options:
        """The options that all runs of a block share: with `global_batch`, without their accumulation."""
        return self.options if self.global_batch is None else replace(self.options, gradient_accumulation=1)

    @property
    def timed(self) -> Steps:
        """The steps of the run. A job has no warm-up, and all its steps are timed."""
        if self.job is None:
            return self.steps
        return Steps(warmup=0, timed=self.job.steps(self.size.global_batch, 1), max_total_seconds=None)

    @property
    def decoders(self) -> int:
        """The number of processes, or of DALI's threads, that decode pictures for each rank."""
        return self.decode_workers or self.threads

    @property
    def cell(self) -> str:
        """`<benchmark>/bz<b>_<precision>`. One summary holds all frameworks, topologies and repeats of a cell."""
        return f"{self.benchmark}/bz{self.batch}_{self.precision}"

    @property
    def summary(self) -> str:
        return f"results/{self.cell}.json"

    @property
    def record(self) -> str:
        return f"results/{self.cell}/{self.framework}/{self.topology}/run{self.repeat}.json"

    @property
    def log(self) -> str:
        return self.record.removesuffix(".json") + ".log"


def _flat(given: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in given.items():
        if name != "content":
            flat |= value if name == "parameters" else {name: value}
    return flat


def canonical(value: Any) -> str:
    """Return JSON in canonical form: equal values always give the same text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def example(model: str, parameters: P, **changes: Any) -> RunSpec[P]:
    """Return a specification for a question about a model alone, such as its FLOPs: one device, one sample."""
    rest: dict[str, Any] = {"topology": Topology(1, 1), "options": Options(data="synthetic"), "precision": "fp32"}
    rest |= {"benchmark": "example", "framework": "torch", "batch": 1, "repeat": 1, "protocol": 0}
    return RunSpec(model=model, parameters=parameters, **rest | changes)
