"""What crosses between launcher, agents, ranks and samplers: one frozen dataclass per message, one writer, one reader.

    Order         launcher -> agents, ranks, samplers    WORK/job.json
    RankReport    rank -> launcher                       WORK/rank_<rank>.json
    NodeSamples   sampler -> launcher                    WORK/telemetry_<node>.json
    Line          agent <-> launcher, sampler -> agent   a line that begins with MARK
    Question      launcher -> node                       an argument of launch/machine.py
    Answer        node -> launcher                       the last line of its output

A key that is missing or unknown is a ValueError that names it. Standard library only: ranks run in a framework's
environment.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform, get_args, get_type_hints

MARK = "\x1e"
"""How a line begins that is a message, and no output of a rank."""


@dataclass_transform(frozen_default=True)
class Message:
    """A frozen dataclass whose fields are JSON values, messages, or lists of messages."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


Kind = TypeVar("Kind", bound=Message)


def text(message: Message) -> str:
    """The JSON of a message, on one line."""
    return json.dumps(asdict(message))


def parsed(kind: type[Kind], value: Any) -> Kind:
    """The message of this kind whose JSON was read as `value`; ValueError where its keys are others."""
    name, expected = kind.__name__, kind.__dataclass_fields__
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {value!r} is no object")
    for what, keys in (("missing", expected.keys() - value.keys()), ("unknown", value.keys() - expected.keys())):
        if keys:
            raise ValueError(f"{name}: {what} key {', '.join(sorted(keys))}")
    return kind(**{key: _part(hint, value[key]) for key, hint in get_type_hints(kind).items() if key in expected})


def _part(hint: Any, value: Any) -> Any:
    for kind in (hint, *get_args(hint)):  # M, M | None, list[M]
        if isinstance(kind, type) and issubclass(kind, Message) and value is not None:
            return [parsed(kind, one) for one in value] if isinstance(value, list) else parsed(kind, value)
    return value


def write(message: Message, path: Path) -> None:
    """Write a message into a file that is whole or absent."""
    partial = path.with_suffix(".partial")
    partial.write_text(text(message))
    partial.replace(path)


def read(kind: type[Kind], path: Path) -> Kind:
    """The message in a file. OSError where there is none, ValueError where it is none of this kind."""
    return parsed(kind, json.loads(path.read_text()))


class Checkpoint(Message):
    """A checkpoint of a convergence check: after which step, its file in the check's folder, and its digest."""

    step: int
    file: str
    sha256: str


class Training(Message):
    """A convergence check: train to the last step, look at `samples` of held-out data every so many steps.

    resume: what an earlier call has left; begin: where it starts from, if not from random weights, by its full path.
    """

    steps: int
    evaluate_every: int
    samples: int
    folder: str
    identity: str
    resume: Checkpoint | None
    begin: Checkpoint | None


class Order(Message):
    """One run, as agents, ranks and samplers have to know it.

    spec: the specification with its defaults; python: the interpreter of the ranks; agents: how many there are, each
    with an equal share of the ranks; cores: those of each node of a Slurm job; variables: what every rank finds in its
    environment; reach: how nodes are reached; hosts: the nodes' names, none where they are this machine; shared:
    several machines take part; weights: a file that the ranks start from; workflow: the interpreter of the launcher, in
    whose environment samplers and decoders run; telemetry: whether nodes are sampled; earlier_gpus: facts of the first
    node's GPUs in an earlier repeat.
    """

    spec: dict[str, Any]
    python: str
    world: int
    nodes: int
    per_node: int
    agents: int
    cores: int
    kind: Literal["cpu", "cuda"]
    manifest: str | None
    variables: dict[str, str]
    reach: Literal["here", "simulated", "slurm", "ssh"]
    hosts: list[str]
    shared: bool
    weights: str | None
    workflow: str
    telemetry: bool
    earlier_gpus: list[dict[str, Any]]
    strict: bool
    convergence: Training | None

    def ranks_of(self, agent: int) -> range:
        """The ranks that an agent answers for."""
        count = self.world // self.agents
        return range(agent * count, (agent + 1) * count)

    @property
    def beside(self) -> str:
        """The interpreter of what runs beside ranks: the launcher's, or this process's own where a node has it not."""
        return self.workflow if Path(self.workflow).exists() else sys.executable

    @property
    def devices(self) -> int:
        """The devices of its machine that an agent's ranks use: a node's, or those of all simulated nodes of its."""
        return self.per_node if self.shared else self.world // self.agents


class Window(Message):
    """The timed window on the monotonic clock of its node."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Memory(Message):
    """Peaks of one rank's device since it started, and why one of them is not known."""

    needed_bytes: int | None
    reserved_bytes: int | None
    reasons: dict[str, str]


class Network(Message):
    """The messages that carry a step's gradients, and the seconds that all of them take where nothing is computed; None
    with the reason where that was asked for and is not known."""

    messages: int | None
    bytes_per_step: int | None
    seconds: float | None
    reason: str | None


class Measured(Message):
    """What a rank measured. facts and counted: what the workload knows of its data, and counted of the window's;
    figures: what it measured beside throughput ({name, unit, better, at, value}); loss: None where nothing trains."""

    cpu_seconds: float
    loader_stall_s: float | None
    facts: dict[str, Any]
    counted: dict[str, float]
    figures: list[dict[str, Any]]
    step_seconds: list[float]
    loss: list[float] | None
    warmup_loss: list[float] | None
    warmup_steps: int
    steps_timed: int
    scaler_skipped_steps: int
    matmul_flops_per_s: float | None
    work_reasons: dict[str, str]
    window: Window
    memory: Memory
    network: Network | None


class Trained(Message):
    """What a convergence check came to: a look at held-out data at every border, rank 0's loss at every step."""

    curve: list[dict[str, Any]]
    losses: list[float | None]


class Software(Message):
    """What a rank ran with: versions, and the settings that the framework states of itself as built.

    bound: the cores that it was bound to at its end and their NUMA nodes; None where it could use every core.
    """

    python: str
    versions: dict[str, str | None]
    packages: dict[str, str]
    settings: dict[str, Any]
    bound: dict[str, list[int]] | None = None


class RankReport(Message):
    """How a rank ended, at which time of day. With status ok it has its software, and was either measured or trained;
    otherwise it has a reason."""

    rank: int
    at: float
    status: Literal["ok", "oom", "unsupported", "failed"]
    reason: str | None = None
    measured: Measured | None = None
    trained: Trained | None = None
    software: Software | None = None


class Beat(Message):
    """Where a rank stands: in which phase, after how many of its steps."""

    phase: str
    step: int
    steps: int


class Line(Message):
    """One line that is a message; `heard` reads what `line` writes."""


class Alive(Line):
    """An agent is there. `over`: its ranks have ended, and nothing is to be heard of them any more."""

    node: int
    over: bool


class Reserved(Line):
    """An agent's node is fit for the run, and keeps a port free for each of its ranks."""

    node: int
    ports: list[int]


class Start(Line):
    """The launcher has heard of all agents: every rank of the run may listen at its address (`host:port`)."""

    addresses: list[str]


class Standing(Line):
    """A rank stands elsewhere than before."""

    rank: int
    beat: Beat


class Ended(Line):
    """A rank's process has ended; status None where only that is known, negative: the signal."""

    rank: int
    status: int | None


class Refusal(Line):
    """An agent starts no rank: what is wrong with its node's GPUs."""

    node: int
    faults: list[str]


class Ready(Line):
    """A sampler has looked at its node's GPUs, and found this that refuses a run."""

    faults: list[str]


class Stacks(Line):
    """The launcher wants every rank to write the stacks of its threads."""


KINDS = (Alive, Reserved, Start, Standing, Ended, Refusal, Ready, Stacks)
LINES: dict[str, type[Line]] = {kind.__name__: kind for kind in KINDS}


def line(message: Line) -> str:
    """The line of a message, without its end."""
    return MARK + json.dumps({type(message).__name__: asdict(message)})


def heard(spoken: str) -> Line:
    """The message in a line that begins with MARK."""
    ((name, value),) = json.loads(spoken[len(MARK) :]).items()
    return parsed(LINES[name], value)


class Sample(Message):
    """Counters and gauges of one moment (monotonic clock): of the machine, the run's processes, its devices."""

    at: float
    sampler_cpu_s: float
    machine: dict[str, Any]
    processes: dict[str, Any]
    devices: list[dict[str, Any]]


class Reasons(Message):
    """Why a sampler does not know a counter: by its name, and for devices by their index; or why it knows no device."""

    machine: dict[str, str]
    processes: dict[str, str]
    devices: list[dict[str, str]]
    no_devices: str | None


class NodeSamples(Message):
    """All that a node's sampler has seen. cards: what does not change of the run's GPUs; warnings: what marks it."""

    interval_s: float
    cpus: int
    memory_bytes: int
    cards: list[dict[str, Any]]
    warnings: list[str]
    reasons: Reasons
    samples: list[Sample]


class Gpus(Message):
    """The GPUs that a framework sees on a node; fp16: whether they multiply in half precision themselves."""

    count: int
    name: str | None
    fp16: bool | None


class Device(Message):
    """What a run trains on: its GPUs, or the cores of the processor."""

    kind: Literal["cpu", "cuda"]
    name: str
    count: int
    fp16_native: bool | None


class Question(Message):
    """What a node is asked before a run. gpus: whether to look for any; seen: a file that every node has to see."""

    framework: str
    model: str
    gpus: bool
    seen: str
    record: str
    ranks: int
    threads: int
    strict: bool


class Fault(Message):
    """Why a node is not fit for a run now: the parts of a UserError."""

    what: str
    why: str | None
    next_step: str | None


class Answer(Message):
    """What a node has, and whether it is fit for a run now."""

    node: int
    sees_files: bool
    software: dict[str, str | None]
    environment: dict[str, Any]
    warnings: list[str]
    gpus: Gpus
    cpu: Device
    refused: Fault | None
