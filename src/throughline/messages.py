"""The messages between the launcher, the agents of the nodes and the ranks: one frozen dataclass for each.

    Question      launcher -> node            an argument of launch/machine.py
    Answer        node -> launcher            the last line of its output
    LaunchPlan    launcher -> agents, ranks   WORK/launch_plan.json
    Line          agent <-> launcher          a line that begins with MARK
    RankReport    rank -> launcher            WORK/rank_<rank>.json
    NodeSamples   agent -> launcher           WORK/telemetry_<node>.json

They are read as parts of a specification are (`spec.read`): a missing or unknown key raises a ValueError that names the
key. Standard library only: ranks run in a framework's environment.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from throughline.spec import part

MARK = "\x1e"
"""The first character of a line that is a message. Every other line is output of a rank."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Message:
    """A frozen dataclass whose fields are JSON values, messages, or lists of messages."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


Kind = TypeVar("Kind", bound=Message)


def text(message: Message) -> str:
    """Return the JSON of a message, on one line."""
    return json.dumps(asdict(message))


def write(message: Message, path: Path) -> None:
    """Write a message into a file. A reader sees the complete file or no file."""
    partial = path.with_suffix(".partial")
    partial.write_text(text(message))
    partial.replace(path)


def read(kind: type[Kind], path: Path) -> Kind:
    """Return the message in a file. Raise OSError without a file, and ValueError if it is no message of this kind."""
    return part.read(kind, json.loads(path.read_text()))


class Checkpoint(Message):
    """A checkpoint of a convergence check: after which step it was made, its file in the check's folder, its digest."""

    step: int
    file: str
    sha256: str


class Training(Message):
    """A convergence check: train `steps` steps, and evaluate `samples` of held-out data every `evaluate_every` steps.

    resume: the checkpoint of an earlier call that did not finish; begin: the checkpoint, with its full path, whose
    weights training starts from, None for random weights.
    """

    steps: int
    evaluate_every: int
    samples: int
    folder: str
    identity: str
    resume: Checkpoint | None
    begin: Checkpoint | None


class ProgramPlan(Message):
    """What a run of a program needs beside its specification.

    folder: its working directory; files: patterns of files there that decide what is measured; python: whose packages
    the record lists; silent_for: the most seconds without a step; timeout: the most seconds that it may take;
    min_window_seconds: the shortest window.
    """

    folder: str
    files: list[str]
    python: str | None
    silent_for: float
    timeout: float | None
    min_window_seconds: float


class LaunchPlan(Message):
    """Everything that agents and ranks have to know about one run.

    spec: the specification with its defaults; python: the interpreter of the ranks; agents: how many agents there are,
    each with an equal share of the ranks; cores: the cores of each node of a Slurm job; variables: the environment
    variables of every rank; reach: how the launcher reaches the nodes; hosts: the nodes' names, empty if all nodes are
    this machine; weights: a file with the weights that the ranks start from; workflow: the launcher's interpreter, in
    whose environment agents and decoders run; telemetry: whether agents sample their nodes; earlier_gpus: facts about
    the first node's GPUs in an earlier repeat; updates: a file with what the reference of an equivalence check adds to
    each weight in the run's steps, None if updates are not compared; program: None for a framework of ours;
    checkpoints: the folder for checkpoints, None if the run makes none; restart: begin again from the last one there,
    make a step, and end.
    """

    spec: dict[str, Any]
    python: str
    nodes: int
    per_node: int
    agents: int
    cores: int
    kind: str
    manifest: str | None
    variables: dict[str, str]
    reach: Literal["here", "simulated", "slurm", "ssh"]
    hosts: list[str]
    weights: str | None
    workflow: str
    telemetry: bool
    earlier_gpus: list[dict[str, Any]]
    strict: bool
    convergence: Training | None
    updates: str | None = None
    program: ProgramPlan | None = None
    checkpoints: str | None = None
    restart: bool = False

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.nodes * self.per_node

    def ranks_of(self, agent: int) -> range:
        """Return the ranks that an agent is responsible for."""
        count = self.world // self.agents
        return range(agent * count, (agent + 1) * count)

    def agent_of(self, rank: int) -> int:
        """Return the agent that is responsible for a rank."""
        return rank // (self.world // self.agents)

    def processes_of(self, agent: int) -> list[int]:
        """Return the ranks that are processes: all of them; of a program that starts once for each node, the first."""
        ranks = list(self.ranks_of(agent))
        return ranks if not self.program or self.spec["program"]["start"] == "rank" else ranks[:: self.per_node]

    @property
    def processes(self) -> list[int]:
        """The ranks of all agents that are processes."""
        return [rank for agent in range(self.agents) for rank in self.processes_of(agent)]

    @property
    def workflow_python(self) -> str:
        """The interpreter for agents and decoders: the launcher's or, on a node without it, that of this process."""
        return self.workflow if Path(self.workflow).exists() else sys.executable

    @property
    def distributed(self) -> bool:
        """True if several machines take part."""
        return bool(self.hosts)

    @property
    def devices(self) -> int:
        """The number of devices that an agent's ranks use on its machine, with all the simulated nodes of the agent."""
        return self.per_node if self.distributed else self.world // self.agents


class Window(Message):
    """The timed window: its start and end in seconds of its node's monotonic clock."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Memory(Message):
    """The memory peaks of one rank's device since the rank started, and the reason for each unknown peak.

    window_needed_bytes: the peak within the timed window; None if the framework cannot count it.
    """

    needed_bytes: int | None
    reserved_bytes: int | None
    reasons: dict[str, str]
    window_needed_bytes: int | None = None


class Network(Message):
    """The all-reduce messages that carry a step's gradients, measured without any computation.

    seconds: of all messages together. All figures are None, with a reason, if the measurement was asked for and failed.
    """

    messages: int | None
    bytes_per_step: int | None
    seconds: float | None
    reason: str | None


class Rounding(Message):
    """The relative error of a product of two size x size matrices, compared with float64.

    None, with a reason, if the framework could not multiply.
    """

    size: int
    relative_error: float | None
    reason: str | None = None


class Update(Message):
    """How far a tensor's update is from the reference's, over the elements that this rank holds.

    name: the tensor's name in the model's PyTorch implementation; update, weights: the norms of the reference's update
    and of the weights before it; difference: the norm of the difference of both updates, None if it is not finite.
    """

    name: str
    update: float
    difference: float | None
    weights: float


class EquivalenceReport(Message):
    """What only a rank of an equivalence check reports.

    skipped: the steps that the loss scaler skipped; the first step is 1. reason: why `updates` is empty.
    """

    skipped: list[int]
    updates: list[Update]
    reason: str | None


class StartUp(Message):
    """How a rank came to the end of its first step.

    began: when its process began (`time.time()`); seconds: those of each part from then on; from_cache: whether all
    compiled code came from the compiler's cache, None if nothing is compiled or the library does not say.
    """

    began: float
    seconds: dict[str, float]
    from_cache: bool | None = None


class Checkpointed(Message):
    """What checkpoints cost a rank, in seconds of each (records/run.py's `Checkpoints`).

    digest: the SHA-256 of what this rank holds of the last one; reason: why the figures are missing, None if they are
    there.
    """

    bytes: int | None = None
    file_system: str | None = None
    equal: bool | None = None
    save_s: list[float] = field(default_factory=list)
    async_blocked_s: list[float] = field(default_factory=list)
    async_written_s: list[float] = field(default_factory=list)
    async_lost_s: list[float] = field(default_factory=list)
    load_cold_s: list[float] = field(default_factory=list)
    load_warm_s: list[float] = field(default_factory=list)
    digest: str = ""
    reason: str | None = None


class Restarted(Message):
    """A rank that began again from a checkpoint: when its first step had ended (`time.time()`), and what it loaded."""

    at: float
    digest: str


class ReadPass(Message):
    """One pass over the data without training: samples of a rank's replica, and the seconds that they took.

    workers: processes or threads that decode, 1 for a reader without them; state: of the files when the pass began,
    `not cold` if they could not be dropped from the page cache, or are too few.
    """

    workers: int
    state: Literal["cold", "warm", "not cold"]
    samples: int
    seconds: float


class Measured(Message):
    """The measurements of a rank.

    facts: what the workload knows about its data; counted: what the workload counted in the data of the window;
    figures: measurements beside throughput ({name, unit, better, at, value}); loss: None if nothing is trained;
    min_window_seconds: the shortest window that the rank planned for; batches_ahead: how many batches may wait for the
    rank; equivalence: None outside an equivalence check.
    """

    window: Window
    step_seconds: list[float]
    warmup_steps: int
    steps_timed: int
    cpu_seconds: float
    memory: Memory
    work_reasons: dict[str, str]
    loader_stall_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    figures: list[dict[str, Any]] = field(default_factory=list)
    loss: list[float] | None = None
    warmup_loss: list[float] | None = None
    scaler_skipped_steps: int = 0
    matmul_flops_per_s: float | None = None
    network: Network | None = None
    min_window_seconds: float = 0.0
    batches_ahead: int = 0
    rounding: Rounding | None = None
    equivalence: EquivalenceReport | None = None
    start_up: StartUp | None = None
    checkpoints: Checkpointed | None = None
    reading: list[ReadPass] = field(default_factory=list)


class Trained(Message):
    """The result of a convergence check: each evaluation on held-out data, and rank 0's loss at every step."""

    curve: list[dict[str, Any]]
    losses: list[float | None]


class Software(Message):
    """The software of a rank: versions, and the settings that the framework reports after it has built the model.

    bound: the cores that the rank was bound to at its end, and their NUMA nodes; None if it could use every core.
    """

    python: str
    versions: dict[str, str | None]
    packages: dict[str, str]
    settings: dict[str, Any]
    bound: dict[str, list[int]] | None = None


class ProgramRun(Message):
    """What a runner saw of its program: its marks or lines as columns (programs/timing.py), and its command.

    clock_s: the difference between the time of day and the node's monotonic clock.
    """

    points: dict[str, list[Any]]
    clock_s: float
    command: list[str]


class RankReport(Message):
    """How a rank ended, and when (at: `time.time()`).

    With status ok, it has `software` and one of `measured`, `trained` and `restarted`. With any other status, it has a
    `reason`.
    double_of_cuda: what a fake CUDA driver in the rank's process says of itself; None if there was none; program: only
    from the runner of a program.
    """

    rank: int
    at: float
    status: Literal["ok", "oom", "unsupported", "failed"]
    reason: str | None = None
    measured: Measured | None = None
    trained: Trained | None = None
    software: Software | None = None
    double_of_cuda: str | None = None
    program: ProgramRun | None = None
    restarted: Restarted | None = None

    @property
    def is_killed(self) -> bool:
        """True if the rank has left a checkpoint and is killed after its report, so that new ranks begin from there."""
        costs = self.measured and self.measured.checkpoints
        return bool(costs and not costs.reason)


class Beat(Message):
    """The progress of a rank: its phase, the steps done in this phase, and the steps of the phase."""

    phase: str
    step: int
    steps: int


class Line(Message):
    """A message on one line. `line` writes it and `heard` reads it."""


class Alive(Line):
    """An agent is alive. `over`: its ranks have ended, and this is its last message."""

    node: int
    over: bool


class NodeReady(Line):
    """An agent's node is fit for the run, and the agent has reserved a port for each of its ranks."""

    node: int
    ports: list[int]


class Start(Line):
    """All agents have reported to the launcher. `addresses` has, for every rank, where it may listen (`host:port`)."""

    addresses: list[str]


class RankProgress(Line):
    """The progress of a rank has changed."""

    rank: int
    beat: Beat


class RankEnded(Line):
    """A rank's process has ended. status: the exit status, negative for a signal, None if unknown."""

    rank: int
    status: int | None


class GpuFault(Message):
    """A fault for which a run is refused. text: a sentence; gpu: the index of the GPU, None if all are meant.

    broken: what follows the name of the GPU in a sentence, if the GPU itself is broken and not only busy.
    """

    text: str
    gpu: int | None = None
    broken: str | None = None


class Refusal(Line):
    """An agent starts no ranks, because its node's GPUs have these faults."""

    node: int
    faults: list[GpuFault]


class NoTelemetry(Line):
    """There will be no figures of a node, because its sampler has failed."""

    node: int
    reason: str


class Finish(Line):
    """The starter of the first node has ended, and so have all ranks. The other agents end, too."""


class Stacks(Line):
    """The launcher asks every rank to write the stacks of its threads."""


LINES: dict[str, type[Line]] = {kind.__name__: kind for kind in Line.__subclasses__()}


def line(message: Line) -> str:
    """Return the line of a message, without a line end."""
    return MARK + json.dumps({type(message).__name__: asdict(message)})


def heard(spoken: str) -> Line:
    """Return the message in a line that begins with MARK."""
    ((name, value),) = json.loads(spoken[len(MARK) :]).items()
    return part.read(LINES[name], value)


class Sample(Message):
    """Counters and gauges of the machine, the run's processes and its devices, at one moment of the monotonic clock."""

    at: float
    sampler_cpu_s: float
    machine: dict[str, Any]
    processes: dict[str, Any]
    devices: list[dict[str, Any]]


class Reasons(Message):
    """The reasons for unknown figures of a sampler: by name of the figure, and for devices also by their index.

    no_devices: why there are no devices.
    """

    machine: dict[str, str]
    processes: dict[str, str]
    devices: list[dict[str, str]]
    no_devices: str | None


class NodeSamples(Message):
    """Everything that a node's sampler has measured.

    cards: facts about the run's GPUs that do not change during a run; warnings: the sampler's warnings about its GPUs.
    """

    interval_s: float
    cpus: int
    memory_bytes: int
    cards: list[dict[str, Any]]
    warnings: list[str]
    reasons: Reasons
    samples: list[Sample]


class Gpus(Message):
    """The accelerators that a framework sees on a node.

    kind: `cuda`, or another kind that the framework trains on; None if it sees none; fp16: whether their hardware
    multiplies in half precision.
    """

    kind: str | None
    count: int
    name: str | None
    fp16: bool | None


class Device(Message):
    """The device of a run: its accelerators, or the cores of the processor (kind `cpu`)."""

    kind: str
    name: str
    count: int
    fp16_native: bool | None


class Question(Message):
    """The launcher's question to a node before a run.

    device: what `runs.device` asks for; seen: a file that every node has to see; rank_bytes: the memory that a rank of
    an earlier repeat took on a CPU, 0 if there was none; compiles: whether ranks on GPUs need a C compiler.
    """

    framework: str
    model: str
    device: str
    seen: str
    record: str
    ranks: int
    threads: int
    strict: bool = False
    rank_bytes: int = 0
    compiles: bool = False


class Fault(Message):
    """Why a node is not fit for a run now, as the parts of a UserError."""

    what: str
    why: str | None
    next_step: str | None


class Answer(Message):
    """A node's answer: its hardware and software, and whether it is fit for a run now."""

    node: int
    sees_files: bool
    software: dict[str, str | None]
    environment: dict[str, Any]
    warnings: list[str]
    gpus: Gpus
    cpu: Device
    refused: Fault | None
