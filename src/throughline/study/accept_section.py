"""The section `accept`: which nodes `snakemake accept` measures, with what, and what is expected of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from throughline.spec.run import NumberFormat
from throughline.study.benchmark import DeviceName, HostName, PartitionName
from throughline.study.section import Name, PositiveInt, Section, Text

What = Literal["step", "matmul", "memory", "copies", "all-reduce", "disk"]
FigureName = Literal[
    "samples_per_s", "matmul", "vector_memory", "host_to_device", "device_to_host", "bus_bandwidth", "latency",
    "disk_write", "disk_read",
]  # fmt: skip
FIGURES: dict[What, tuple[FigureName, ...]] = {
    "step": ("samples_per_s",),
    "matmul": ("matmul",),
    "memory": ("vector_memory",),
    "copies": ("host_to_device", "device_to_host"),
    "all-reduce": ("bus_bandwidth", "latency"),
    "disk": ("disk_write", "disk_read"),
}
"""Map each measurement to its figures that are compared."""
AllFeatures = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]+(&[A-Za-z0-9_.:-]+)*$")]
Kind = Literal["device", "node", "pair", "all"]


class Expectation(Section):
    """A figure that somebody has published for such hardware, or that a vendor has promised."""

    what: What = Field(description="the measurement")
    at: Kind = Field("device", description="where it takes place")
    size: PositiveInt | None = Field(None, description="rows, elements or bytes; null: the largest")
    figure: FigureName | None = Field(None, description="copies, all-reduce and disk have two; null: the first")
    value: PositiveFloat = Field(description="the figure")
    unit: Text = Field(description="as records have it, such as `TFLOPS`, `GB/s` or `samples/s`")
    source: Text = Field(description="who says so, and where")

    @model_validator(mode="after")
    def _figure_is_measured(self) -> Expectation:
        if self.figure and self.figure not in FIGURES[self.what]:
            raise ValueError(f"figure = {self.figure}: {self.what} has {' and '.join(FIGURES[self.what])}")
        return self


FewSizes = Annotated[list[PositiveInt], Field(max_length=4)]


class AcceptSizes(Section):
    """Sizes of the single measurements. An empty list takes the default of the device."""

    matmul: FewSizes = Field(default_factory=list, description="rows; []: 8192, on a CPU 1024")
    memory: FewSizes = Field(default_factory=list, description="elements of a vector; []: 268435456, on a CPU 16777216")
    copies: FewSizes = Field(
        default_factory=list, description="bytes to and from the host; []: 268435456; a CPU has none"
    )
    disk: FewSizes = Field(default_factory=list, description="bytes of a file; []: 268435456, on a CPU 67108864")
    all_reduce: Annotated[list[PositiveInt], Field(max_length=12)] = Field(
        default_factory=list,
        description="bytes; []: 1 KiB, 1 MiB and 1 GiB, on a CPU 1 KiB, 64 KiB and 4 MiB",
    )


class OfProgram(Section):
    """A program whose steps are measured in place of a framework's."""

    program: Text = Field(description="its name in `programs`")
    batch: PositiveInt | None = Field(None, description="null: the program decides")
    precision: NumberFormat | None = Field(None, description="null: the program decides")


class Accept(Section):
    quick: bool = Field(
        False,
        description="all nodes check themselves at once with all devices, on GPUs in at most 60 s. A node that does "
        "not answer is named and not waited for. Pairs are measured among nodes that passed",
    )
    device: DeviceName = Field(
        "auto", description="as `runs.device`. On GPUs every GPU is measured alone; on a CPU the node is the device"
    )
    nodes: PositiveInt | None = Field(
        None, description="how many. null: all of Slurm's partition or of `hosts`, or this machine"
    )
    hosts: Literal["simulated"] | Annotated[list[HostName], Field(min_length=1)] | None = Field(
        None,
        description="null: Slurm's partition, or this machine. Names: nodes of the partition, or without Slurm "
        "machines through ssh. `simulated`: one machine acts as all",
    )
    partition: PartitionName | None = Field(
        None,
        description="null: that in slurm/config.yaml, or the default one",
    )
    constraint: AllFeatures | None = Field(None, description="features of the nodes, such as `a100&ib`")
    devices: PositiveInt | None = Field(
        None, description="GPUs of each node, on a CPU worker processes; null: all GPUs, on a CPU 1"
    )
    threads: PositiveInt | None = Field(
        None, description="threads of each worker on a CPU; null: all cores, divided among workers"
    )
    repeats: Annotated[int, Field(ge=1, le=99)] = Field(3, description="how often everything is measured")
    measure: Annotated[list[What], Field(min_length=1)] = Field(
        default_factory=lambda: list(FIGURES),
        description="fewer take less time. Without `all-reduce`, pairs are not measured",
    )
    train: Name | OfProgram | None = Field(
        None,
        description="the benchmark whose step is measured (first framework, precision and batch, synthetic batches), "
        "or a program. null: BERT-base with 128 tokens in bf16, on a CPU bert-tiny with 32 in fp32",
    )
    precision: NumberFormat | None = Field(None, description="of the matrix products; null: bf16, on a CPU fp32")
    step_s: PositiveFloat | None = Field(None, description="seconds of training steps in a run; null: 10, on a CPU 3")
    min_seconds: Annotated[float, Field(ge=0.01)] = Field(1.0, description="shortest time for each size")
    sizes: AcceptSizes = Field(default_factory=AcceptSizes, description="what is multiplied, copied, sent and written")
    disk: Text | None = Field(
        None, description="the folder on each node where `disk` writes a file; null: the temporary folder ($TMPDIR)"
    )
    pairs: Literal["all", "none"] | PositiveInt = Field(
        "all",
        description="`all`: a round robin of every two nodes; a number: so many rounds of it",
    )
    tolerance: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.02,
        description="a place less far behind its peers is not slow; a figure may miss `accept.expected` by it",
    )
    expected: list[Expectation] = Field(
        default_factory=list,
        description="figures that must be reached, such as a vendor's promise; otherwise the acceptance fails",
    )
    published: list[Expectation] = Field(
        default_factory=list,
        description="published figures: the result says which share is reached, and nothing fails",
    )

    @model_validator(mode="after")
    def _hosts_are_enough(self) -> Accept:
        if isinstance(self.hosts, list):
            if len(set(self.hosts)) < len(self.hosts):
                raise ValueError("hosts: a host is listed twice")
            if self.nodes is not None and self.nodes > len(self.hosts):
                raise ValueError(f"nodes = {self.nodes}: hosts has {len(self.hosts)}")
        return self
