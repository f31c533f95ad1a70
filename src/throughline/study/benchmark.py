"""The block of a benchmark in config.yaml, and the section `runs`, whose keys a block can override."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from throughline import frameworks, ratios, spelling, versions, workloads
from throughline.spec import Batch, EpochsJob, Optimizer, Precision, RunSpec, Scaling, Steps, StepSize, Topology
from throughline.spec.program import DECIDES
from throughline.spec.program import NAME as PROGRAM_NAME
from throughline.study.config_errors import allowed
from throughline.study.section import HOST, TOPOLOGY, FilePath, Name, PositiveInt, Section, Share, Sizes, Value, lead

if typing.TYPE_CHECKING:
    from throughline.spec import Options as Options

    DeviceName = str
else:
    Options = frameworks.options()
    DeviceName = Literal[("auto", *frameworks.accelerators(), "cpu")]

ProgramName = Annotated[str, Field(pattern=rf"^{PROGRAM_NAME}$")]
FrameworkName = Annotated[str, Field(pattern=f"^{versions.NAME}$")]
BatchSize = PositiveInt | Literal["program"]
TopologyName = Annotated[str, Field(pattern=rf"^{TOPOLOGY}$")]
HostName = Annotated[str, Field(pattern=HOST)]
PartitionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,-]*$")]
Features = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[(][A-Za-z0-9_.:&|*()\[\]-]*$")]
PROGRAMS_ALONE: dict[str, Any] = {"model": DECIDES, "frameworks": [], "batch": {DECIDES: [DECIDES]}}
"""The defaults of a block that measures programs and no framework of ours."""
KINDS: dict[Any, Any] = {tuple[int, ...]: Sizes}
"""Map the type of a workload's parameter to the type that a configuration may write, if the two differ."""


class Placement(Section):
    partition: PartitionName | None = Field(None, description="null: the one in slurm/config.yaml, or the default one")
    constraint: Features | None = Field(
        None, description="features of the nodes (`sbatch --constraint`), such as `a100&ib`"
    )


class Runs(Section):
    device: DeviceName = Field(RunSpec.device, description="`auto`: GPUs if there are any, otherwise the CPU")
    repeats: Annotated[int, Field(ge=1, le=99)] = Field(5, description="how often every configuration runs")
    enough: Annotated[int, Field(ge=1, le=99)] | None = Field(
        None,
        description="a summary is made of so many repeats if all others failed: the cell says 6/7, and why. Failed "
        "repeats are not tried again unless a target names them. null: of all repeats",
        exclude_if=lambda value: value is None,
    )
    margin: Annotated[float, Field(gt=0, le=1)] = Field(
        ratios.MARGIN,
        description="two configurations are equal (*no difference*) if the interval of their ratio lies within this "
        "share. Finished runs stay valid",
    )
    steps: Steps = Field(default_factory=Steps, description="how long a run trains")
    threads: PositiveInt = Field(RunSpec.threads, description="threads per worker on a CPU")
    decode_workers: PositiveInt | None = Field(
        RunSpec.decode_workers,
        description="processes that decode pictures for each device (`dali`: threads), each about 200 a second. "
        "null: `threads`",
    )
    binding: Literal["none", "numa"] = Field(
        RunSpec.binding,
        description="`numa` binds each rank to the cores of its GPU's NUMA node; `unsupported` on a CPU or where the "
        "system names no node",
    )
    network: bool | None = Field(
        RunSpec.network,
        description="measure for two seconds after the window how fast the network alone exchanges gradients "
        "(PyTorch's DistributedDataParallel only). null: on GPUs",
    )
    hosts: Literal["simulated"] | Annotated[list[HostName], Field(min_length=1)] | None = Field(
        None,
        description="null: the nodes of the Slurm job; names: machines that ssh reaches; `simulated`: this machine "
        "acts as all, and tables say so",
    )
    checkpoints: FilePath | None = Field(
        None,
        description="folder that all nodes see, in which runs of the extra `checkpoint` write. To compare file "
        "systems, give each a block: finished runs stay valid. null: beside the record",
    )
    mtbf_hours: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="mean hours between two failures of one device. With the extra `checkpoint`, the table `goodput` "
        "says how much of an hour trains, and how often to save. Finished runs stay valid",
    )
    nodes_at_most: PositiveInt = Field(
        8,
        description="most nodes of a Slurm partition that `topologies: auto` takes, each for itself",
    )
    slurm: dict[TopologyName, Placement] = Field(
        default_factory=dict,
        description="topology: which nodes of a Slurm cluster its runs get. Finished runs stay valid",
    )
    predict: list[TopologyName] = Field(
        default_factory=list,
        description="topologies to predict, not measure (`snakemake predictions`)",
    )
    seed: NonNegativeInt = Field(RunSpec.seed, description="seed of weights, dropout and the order of the data")
    strict: bool = Field(
        False,
        description="for a CI: refuse a busy or changed machine, and summaries with mixed environments or warnings",
    )


class Convergence(Section):
    steps: PositiveInt = Field(50000, description="optimizer steps")
    evaluate_every: PositiveInt = Field(
        1000, description="steps between two evaluations on held-out data; each writes a checkpoint"
    )
    samples: PositiveInt = Field(1000, description="most held-out samples")
    begin_from: Name | None = Field(
        None,
        description="a benchmark whose convergence check trains first: this one begins with its last weights. null: "
        "random weights",
    )
    against: FilePath | None = Field(
        None,
        description="a CSV file with a column `step` and figures of held-out data, or the `curve.json` of another "
        "check",
    )
    tolerance: Share = Field(
        0.05,
        description="how much worse passes: a share of the loss, or a difference of another figure",
    )


class Benchmark(Runs):
    """A block under `benchmarks` in config.yaml.

    A block also takes the keys of its model's workload. `of` returns the class with these keys (`own_keys`), for the
    `models` of the workload in `folder`.
    """

    own_keys: ClassVar[tuple[str, ...]] = ()
    folder: ClassVar[str] = ""
    models: ClassVar[tuple[str, ...]] = ()

    model: str = Field(
        workloads.DEFAULT,
        description="the name of a model (docs/reference/workloads.md); or `{transformers: FILE, task: clm}` (or "
        "`mlm`), a config.json of Hugging Face",
    )
    frameworks: list[FrameworkName] = Field(
        default_factory=lambda: ["torch"],
        description=f"{', '.join(frameworks.NAMES)}; `jax@old` has the pins of `envs/jax@old.txt`. With `programs`, "
        "the default is none",
    )
    programs: list[ProgramName] = Field(
        default_factory=list,
        description="names in `programs`. Leave out `model`, and `batch` if the program decides it",
    )
    only_on: Literal["cuda", "cpu"] | None = Field(
        None,
        description="skip the block on the other kind of device",
    )
    topologies: Literal["auto"] | Annotated[list[TopologyName | Literal["all"]], Field(min_length=1)] = Field(
        default_factory=lambda: typing.cast("list[str]", ["1n1g"]),
        description="`<nodes>n<devices per node>g`. `auto`: 1n1g, then twice as many devices, up to all of this "
        "machine (on a CPU, cores over `threads`) or of Slurm's partition. `all` in a list: the last of these",
    )
    batch: Annotated[dict[Precision, Annotated[list[BatchSize], Field(min_length=1)]], Field(min_length=1)] = Field(
        default_factory=lambda: typing.cast("dict[Precision, list[Batch]]", {"fp32": [32]}),
        description="precision: batch sizes per replica of the model (a device, or `options.tensor_parallel` "
        "devices). `program`: the program decides it",
    )
    scaling: Scaling = Field(
        RunSpec.scaling,
        description="`weak`: `batch` is per replica; `strong`: of all replicas together",
    )
    global_batch: PositiveInt | None = Field(
        RunSpec.global_batch,
        description="samples of all replicas in an optimizer step, in place of `options.gradient_accumulation`",
    )
    optimizer: Optimizer = Field(default_factory=Optimizer, description="name and constants")
    options: Options = Field(default_factory=Options, description="switches; the titles of tables name them")
    extras: list[
        Literal["aa", "synthetic", "no_gradient_sync", "checkpoint", "reading", "max_batch", "max_classes"]
    ] = Field(
        default_factory=list,
        description="more runs: everything again (`aa` shows the noise), with synthetic batches, or with gradients "
        "that ranks keep (both show where a step's time goes); checkpoints and a restart of killed ranks (`torch` "
        "alone); the loader alone, from cold and warm files; a search for the largest batch, or the most classes",
    )
    job: EpochsJob | None = Field(
        None,
        description="a run of `hf-trainer` is a whole job: epochs over all samples, each with an evaluation, without "
        "a warm-up. {} takes the defaults",
    )
    convergence: Convergence | None = Field(
        None,
        description="one long run besides the others, compared with a stated curve. {} takes the defaults",
    )
    total_samples: PositiveInt | None = Field(
        None,
        description="of the whole training: the report has its hours and price",
    )
    remarks: str | None = Field(None, description="text shown under every table")

    @classmethod
    def variant(cls, values: Mapping[str, Any]) -> type[Benchmark]:
        """Return the block's class for the model that `values` name.

        For an unknown model, return the class of the default model. The field `model` reports the mistake.
        """
        model = values.get("model")
        known = workloads.folder(model) if isinstance(model, (str, Mapping)) else None
        return cls.of(known or workloads.models()[workloads.DEFAULT])

    @staticmethod
    @cache
    def of(folder: str) -> type[Benchmark]:
        """Return the block's class for the models of a workload, with the workload's parameters as keys."""
        models = tuple(model for model, of_folder in workloads.models().items() if of_folder == folder)
        parameters = workloads.of_folder(folder).parameters
        types = typing.get_type_hints(parameters)
        keys: dict[str, Any] = {}
        for field in dataclasses.fields(parameters):
            facts = field.metadata
            if facts["asked"]:
                default = ... if field.default is dataclasses.MISSING else field.default
                limits: Any = {name: facts.get(name) for name in ("description", "ge", "le", "gt", "lt")}
                kind = KINDS.get(types[field.name], types[field.name])
                if facts["choices"]:
                    kind = Literal[tuple(facts["choices"])]
                keys[field.name] = kind, Field(default, **limits)
        if twice := sorted(keys.keys() & RESERVED):
            raise TypeError(f"workloads/{folder}: Parameters has fields with names of core keys: {', '.join(twice)}")
        block: Any = create_model(f"{folder}_benchmark", __base__=Benchmark, **keys)
        block.own_keys, block.folder, block.models = tuple(keys), folder, models
        return typing.cast("type[Benchmark]", block)

    @classmethod
    def hint(cls, keys: Sequence[Any], raw: Mapping[str, Any]) -> str | None:
        others = [folder for folder in workloads.FOLDERS if keys[0] in cls.of(folder).own_keys]
        if len(keys) > 1 or not others:
            return None
        block = cls.variant(raw)
        taken = ", ".join(block.own_keys) or "none"
        return f"a key of {spelling.listed(others, 'and')} models; {block.folder} models take: {taken}"

    def size(self, topology: Topology, batch: Batch) -> StepSize:
        """Return the size of a step of a framework on a topology. Raises UserError if something does not divide
        equally."""
        assert isinstance(batch, int)
        size = StepSize.of(topology, self.options.layout, batch, self.scaling, self.options.gradient_accumulation)
        return size if self.global_batch is None else size.accumulating(self.global_batch)

    @property
    def batch_sizes(self) -> dict[Precision, list[int]]:
        """The batch sizes by precision, without those that a program decides."""
        return {
            precision: [size for size in sizes if isinstance(size, int)]
            for precision, sizes in self.batch.items()
            if precision != DECIDES
        }

    @property
    def predicted(self) -> list[str]:
        """The topologies to predict, which are those that the block does not measure."""
        return [topology for topology in self.predict if topology not in self.topologies]

    @property
    def task(self) -> int | None:
        """The samples of the whole training, if the block states them."""
        return self.total_samples or (self.job.trained if self.job else None)

    @property
    def own_values(self) -> dict[str, Value]:
        """The values of the workload's keys."""
        return {key: getattr(self, key) for key in self.own_keys}

    @model_validator(mode="wrap")
    @classmethod
    def _with_the_keys_of_its_model(cls, values: Any, handler: Any, info: ValidationInfo) -> Any:
        if isinstance(values, Mapping) and values.get("programs"):
            stated = {key: value for key, value in values.items() if value is not None}
            values = (PROGRAMS_ALONE if not stated.get("frameworks") else {}) | stated
        right = cls.variant(values) if isinstance(values, Mapping) else cls
        return handler(values) if right is cls else right.model_validate(values, context=info.context)

    @field_validator("model", mode="wrap")
    @classmethod
    def _is_a_model(cls, model: Any, handler: Any, info: ValidationInfo) -> str:
        """Return the model's name. If a map describes the model, the returned name also carries the map's content."""
        if isinstance(model, Mapping):
            file = next(iter(workloads.of_folder(cls.folder).described), None)
            if isinstance(path := model.get(file), str):
                model = {**model, file: lead(path, info)}
            return workloads.of_map(model)
        name: str = handler(model)
        if name not in (*workloads.models(), DECIDES):
            raise ValueError(allowed(name, list(workloads.models()), "docs/reference/workloads.md"))
        return name

    @field_validator("frameworks", "programs", "topologies", "predict", "extras", "batch")
    @classmethod
    def _no_repeats(cls, values: Any) -> Any:
        for listed in values.values() if isinstance(values, dict) else [values]:
            twice = {str(value) for value in listed if listed.count(value) > 1} if isinstance(listed, list) else ()
            if twice:
                raise ValueError(f"listed twice: {', '.join(sorted(twice))}")
        return values

    @field_validator("extras")
    @classmethod
    def _searched_are_its_own(cls, extras: list[str]) -> list[str]:
        for extra in extras:
            if extra.startswith("max_") and extra != "max_batch" and extra.removeprefix("max_") not in cls.own_keys:
                raise ValueError(f"{extra}: {cls.folder} models have no key {extra.removeprefix('max_')}")
        return extras


# fmt: off
RESERVED = {
    *Benchmark.model_fields,
    "benchmark", "content", "framework", "parameters", "precision", "program", "topology", "repeat", "corpus",
    "protocol",
}
"""Names that no workload's parameter may have, because a block or a run specification already uses them."""
