"""What `snakemake accept` measures: places, and for each place ordinary runs of ordinary specifications.

Every measurement is a run record like any other, in a file of its own below results/acceptance/:

    results/acceptance/<place>/<what>/run<k>.json       <place>: node3/device5, node3/all, pair_2_5, all

`records.read_run_of(measurement.record, measurement.spec)` reads one. A file that is not there was not measured: its
node was away, or the measurement failed.

Nodes have numbers from 0. Their names are in results/acceptance.local.json and nowhere else. A run counts its own nodes
from 0, and so do its record, log and telemetry: the only node of node3/... is `node 0` there. `Place.renumbered`
translates their texts.

    step         a training step: samples_per_s
    matmul       figure `matmul` (TFLOPS) by rows of the matrices
    memory       figure `vector_memory` (GB/s read and written) by elements of the vector
    copies       figures `host_to_device` and `device_to_host` (GB/s) by bytes; only where devices are accelerators
    all-reduce   figures `bus_bandwidth` and `algorithm_bandwidth` (GB/s) by bytes. The seconds of a small message are
                 its bytes / 1e9 / algorithm_bandwidth
    disk         figures `disk_write` and `disk_read` (GB/s) by bytes: one file of a node, written by one process

A quick acceptance measures a node in two runs with all of its devices at once: `step`, and `parts`, which has the
figures of the others several times over. Of all nodes together it measures nothing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from throughline.files import UserError
from throughline.grouping import grouped
from throughline.spec import RunSpec, Topology, canonical
from throughline.spec.program import DECIDES
from throughline.study import runs
from throughline.study.accept_section import Expectation, OfProgram, What
from throughline.study.config import Config

FOLDER = "results/acceptance"
RESULT = "results/acceptance.json"
LOCAL = "results/acceptance.local.json"
STANDINGS = FOLDER + "/tables/standings.csv"
PAIRS = FOLDER + "/tables/pairs.csv"
EXCLUDE = "results/acceptance.exclude"
QUICK = FOLDER + "/quick.json"
"""Which nodes have not passed a quick acceptance, and why, by their numbers."""
VISIT = FOLDER + "/{place}/visit{repeat}.json"
VERDICT = {
    "output": RESULT,
    "text": "results/acceptance.txt",
    "page": "results/acceptance.html",
    "standings": STANDINGS,
    "pairs": PAIRS,
    "exclude": EXCLUDE,
}
"""The files that say whether the fleet is fit, by the arguments of workflow/scripts/accept_verdict.py."""
RECORDED: dict[str, tuple[str, ...]] = {
    "step": (),
    "matmul": ("matmul",),
    "memory": ("vector_memory",),
    "copies": ("host_to_device", "device_to_host"),
    "all-reduce": ("bus_bandwidth", "algorithm_bandwidth"),
    "disk": ("disk_write", "disk_read"),
    "parts": ("matmul", "vector_memory"),
}
"""Map each measurement to the figures of its records that are judged; a step is judged by `samples_per_s`."""
ROUNDS = 3
"""How often a quick acceptance measures each figure of a node."""
Run = What | Literal["parts"]
"""What a run measures."""
PlaceKind = Literal["device", "node", "link", "pair", "all"]
Spec = Annotated[RunSpec, BeforeValidator(runs.typed), PlainSerializer(RunSpec.changed)]
"""A specification in JSON without its defaults: the text of an acceptance is a word of a command line."""


@dataclass(frozen=True, order=True)
class Place:
    """Where a measurement takes place. nodes: numbers from 0, ascending; device: its index on its node.

    Kind `node` is one node with all of its devices. If the processor is the device, the node is measured alone as
    `node`, and there are no places of kind `device`. Kind `link` is not measured itself: it is what a node reaches in
    the best of its pairs.
    """

    kind: PlaceKind
    nodes: tuple[int, ...]
    device: int | None = None

    def __str__(self) -> str:
        """Return the place in words: `node 3, GPU 5`, `node 3`, `nodes 2 and 5`, `all nodes`."""
        gpu = "" if self.device is None else f", GPU {self.device}"
        many = "all nodes" if self.kind == "all" else f"nodes {' and '.join(map(str, self.nodes))}"
        return many if self.kind in ("pair", "all") else f"node {self.nodes[0]}{gpu}"

    @property
    def folder(self) -> str:
        if self.kind in ("pair", "all"):
            return "_".join(map(str, [self.kind, *(self.nodes if self.kind == "pair" else ())]))
        return f"node{self.nodes[0]}/" + ("all" if self.device is None else f"device{self.device}")

    @property
    def visit(self) -> str:
        """The node job that measures this place: that of `node3` also measures the devices of node 3 alone."""
        return self.folder.partition("/")[0]

    def renumbered(self, text: str, nodes: Sequence[int] | None = None) -> str:
        """Return a text of a run at this place with the numbers that its nodes have in the acceptance.

        A run says `node 1`, and `node1` in place of a name. Nodes of NUMA and the names of files stay as they are.
        nodes: the numbers in the order of the run's ranks, if it is not that of the place.
        """
        numbers = dict(enumerate(self.nodes if nodes is None else nodes))
        return re.sub(
            r"(?<!NUMA )(?<![\w./-])(node ?)(\d+)\b",
            lambda match: f"{match[1]}{numbers.get(int(match[2]), match[2])}",
            text,
        )


@dataclass(frozen=True)
class Measurement:
    """A run of an acceptance.

    spec: an ordinary specification, with its repeat; record: the file of its record; visible: the indices of the
    devices that it sees of its machine, None for all.
    """

    place: Place
    what: Run
    spec: Spec
    record: str
    visible: tuple[int, ...] | None = None

    @property
    def log(self) -> str:
        return self.record.removesuffix(".json") + ".log"

    @property
    def visit(self) -> str:
        """The file of the node job that makes this record. A node job measures everything once at one place."""
        return VISIT.format(place=self.place.visit, repeat=self.spec.repeat)


@dataclass(frozen=True)
class Fleet:
    """The nodes of an acceptance, without their names.

    nodes: their numbers, ascending. A node that has left the cluster leaves a gap, so that the others keep theirs.
    devices: ranks of a node; kind: the kind of device, `cpu` if the processor is the device; threads: of each rank on a
    CPU; hosts: how nodes are reached, as in a specification. numbering: a random word, the same in all acceptances that
    call the same nodes by the same numbers; None if nobody knows.
    """

    nodes: tuple[int, ...]
    devices: int
    kind: str
    threads: int = 1
    hosts: Literal["simulated", "ssh"] | None = None
    numbering: str | None = None


@dataclass(frozen=True)
class Plan:
    """Everything that an acceptance measures. specs: one for each measurement and topology, with repeat 1; rounds: of
    pairs. quick: nodes are measured once, with all of their devices at once."""

    fleet: Fleet
    repeats: int
    rounds: int
    specs: tuple[tuple[Run, Spec], ...]
    expected: tuple[Expectation, ...] = ()
    published: tuple[Expectation, ...] = ()
    tolerance: float = 0.02
    quick: bool = False

    @property
    def text(self) -> str:
        """The acceptance as JSON on one line, for the command line of a script."""
        return canonical(_PLAN.dump_python(self, mode="json"))

    def measurements(self) -> list[Measurement]:
        """Return all measurements in the order in which they are made: nodes, then pairs by rounds, then all nodes.

        Each of the three goes repeat by repeat, so that a slow hour slows all nodes alike.
        """
        every = [measured for place in self.places() for measured in self._at(place)]
        order = {"device": 0, "node": 0, "pair": 1, "all": 2}
        return sorted(every, key=lambda measured: (order[measured.place.kind], measured.spec.repeat))

    @cached_property  # Snakemake asks about each node job a dozen times, and a large fleet has thousands of node jobs
    def visits(self) -> dict[str, list[Measurement]]:
        """Map the file of each node job to its measurements, in the order in which they are made."""
        return grouped(self.measurements(), lambda measured: measured.visit)

    @cached_property
    def priorities(self) -> dict[str, int]:
        """Map the file of each node job to its priority: higher the earlier it is made."""
        return {file: number for number, file in enumerate(reversed(self.visits), 1)}

    def places(self) -> Iterator[Place]:
        fleet = self.fleet
        for node in fleet.nodes:
            if fleet.kind != "cpu" and not self.quick:
                yield from (Place("device", (node,), device) for device in range(fleet.devices))
            yield Place("node", (node,))
        for pairs in rounds_of_pairs(fleet.nodes)[: self.rounds]:
            yield from (Place("pair", pair) for pair in pairs)
        if len(fleet.nodes) > 2 and not self.quick:  # two nodes are a pair
            yield Place("all", fleet.nodes)

    def _at(self, place: Place) -> Iterator[Measurement]:
        """Yield the measurements at a place. A node whose processor is the device is measured like a device."""
        alone: tuple[Run, ...] = ("step", "matmul", "memory", "copies")
        of_node: tuple[Run, ...] = ("step", "all-reduce", "disk")
        if self.quick or self.fleet.kind == "cpu":
            of_node = ("parts", "step") if self.quick else (*alone, "all-reduce", "disk")
        whats = {"device": alone, "node": of_node, "pair": ("all-reduce",), "all": ("step", "all-reduce")}[place.kind]
        topology = Topology(len(place.nodes), 1 if place.kind == "device" else self.fleet.devices)
        for repeat in range(1, 1 + (1 if self.quick and place.kind == "node" else self.repeats)):
            for what, spec in self.specs:
                if what in whats and (what == "disk" or spec.topology == topology):  # one process writes a file
                    record = f"{FOLDER}/{place.folder}/{what}/run{repeat}.json"
                    yield Measurement(place, what, replace(spec, repeat=repeat), record, self._visible(place))

    def _visible(self, place: Place) -> tuple[int, ...] | None:
        """Return the indices of the devices that runs at a place see. Simulated nodes share those of one machine."""
        fleet = self.fleet
        if fleet.kind == "cpu" or place.kind in ("pair", "all"):
            return None
        first = fleet.nodes.index(place.nodes[0]) * fleet.devices if fleet.hosts == "simulated" else 0
        if place.device is not None:
            return (first + place.device,)
        return tuple(range(first, first + fleet.devices)) if fleet.hosts == "simulated" else None


_PLAN, _VISIT = TypeAdapter(Plan), TypeAdapter(tuple[Measurement, ...])


def read_plan(text: str) -> Plan:
    """Return the acceptance in the text of its property `text`. Raise ValueError if it is none."""
    return _PLAN.validate_json(text)


def visit_text(visit: Sequence[Measurement]) -> str:
    """Return the measurements of a node job as JSON on one line, for the command line of a script."""
    return canonical(_VISIT.dump_python(tuple(visit), mode="json"))


def read_visit(text: str) -> list[Measurement]:
    """Return the measurements in the text of `visit_text`."""
    return list(_VISIT.validate_json(text))


def asked(config: Config, fleet: Fleet) -> Plan:
    """Return what the section `accept` asks for on these nodes."""
    accept, nodes = config.accept, len(fleet.nodes)
    most = len(rounds_of_pairs(fleet.nodes))
    rounds = {"all": most, "none": 0}.get(str(accept.pairs), accept.pairs)
    topologies = dict.fromkeys(
        str(Topology(count, devices))
        for count in (1, min(2, nodes), nodes)
        for devices in (1 if count == 1 and fleet.kind != "cpu" else fleet.devices, fleet.devices)
    )
    specs = [
        (what, spec)
        for what, block in _blocks(config, fleet).items()
        if what in (*accept.measure, "parts")
        for spec in runs.expand(_alone(config, what, {"topologies": list(topologies), **block}))
        if what != "all-reduce" or spec.topology.world > 1
    ]
    return Plan(
        fleet,
        accept.repeats,
        min(int(rounds), most),
        tuple(specs),
        tuple(accept.expected),
        tuple(accept.published),
        accept.tolerance,
        accept.quick,
    )


def rounds_of_pairs(nodes: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return a round robin by the circle method: rounds of disjoint pairs, in which every two nodes meet once.

    An even number of nodes needs one round less than nodes. With an odd number, each round leaves one node out.
    """
    if len(nodes) < 2:
        return []
    ring: list[int | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        facing = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        rounds.append(sorted((min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None))
        ring[1:] = [ring[-1], *ring[1:-1]]
    return rounds


def _blocks(config: Config, fleet: Fleet) -> dict[Run, dict[str, Any]]:
    """Return a block of config.yaml for each measurement, without its topologies."""
    accept, on_cpu = config.accept, fleet.kind == "cpu"
    step_s, sizes = accept.step_s or (3.0 if on_cpu else 5.0 if accept.quick else 10.0), accept.sizes
    exchanged = sizes.all_reduce or ([1 << 10, 1 << 16, 1 << 22] if on_cpu else [1 << 10, 1 << 20, 1 << 30])
    calls: dict[What, tuple[str, list[int]]] = {
        "matmul": ("matmul", sizes.matmul or [1024 if on_cpu else 8192]),
        "memory": ("vector", sizes.memory or [1 << 24 if on_cpu else 1 << 28]),
        "copies": ("copies", sizes.copies or [1 << 28]),
        "all-reduce": ("all-reduce", exchanged),
        "disk": ("disk", sizes.disk or [1 << 26 if on_cpu else 1 << 28]),
    }
    if on_cpu:
        del calls["copies"]
    common: dict[str, Any] = {"device": fleet.kind, "repeats": 1, "threads": fleet.threads, "network": False}
    common["hosts"] = [f"node{node}" for node in fleet.nodes] if fleet.hosts == "ssh" else fleet.hosts
    steps = {"warmup": 5, "timed": 1000, "max_total_seconds": step_s}
    of_call = {"steps": {"warmup": 2, "timed": 10, "max_total_seconds": min(1.0, step_s)}, **common}
    of_call["min_seconds"] = accept.min_seconds
    precision = accept.precision or ("fp32" if on_cpu else "bf16")
    blocks: dict[Run, dict[str, Any]] = {"step": {**_training(config, fleet), "steps": steps, **common}}
    if accept.quick:
        parts = {"rows": max(calls["matmul"][1]), "elements": max(calls["memory"][1]), "exchanged": exchanged}
        parts |= {"copied": max(sizes.copies or [1 << 28]), "rounds": ROUNDS}
        parts |= {"written": max(calls["disk"][1]) if "disk" in accept.measure else 0, "disk_folder": accept.disk or ""}
        parts |= {"min_seconds": min(accept.min_seconds, 0.2), "batch": {precision: [1]}}
        blocks = {"parts": {"model": "node-parts", **of_call, **parts}, "step": blocks["step"]}
        calls = {"all-reduce": calls["all-reduce"]}
    for what, (model, asked) in calls.items():
        batch = {precision if what == "matmul" else "fp32": [1]}
        blocks[what] = {"model": model, "sizes": asked, "batch": batch, **of_call}
    if "disk" in blocks:
        blocks["disk"] |= {"topologies": ["1n1g"], "disk_folder": accept.disk or ""}
    return blocks


def _training(config: Config, fleet: Fleet) -> dict[str, Any]:
    """Return the block whose training step is measured."""
    if config.accept.train is None:
        on_cpu = fleet.kind == "cpu"
        return {
            "model": "bert-tiny" if on_cpu else "bert-base",
            "sequence_length": 32 if on_cpu else 128,
            "batch": {"fp32": [8]} if on_cpu else {"bf16": [64]},
            "options": {"data": "synthetic"},
        }
    if isinstance(config.accept.train, OfProgram):
        asked = config.accept.train
        batch = {asked.precision or DECIDES: [asked.batch or DECIDES]}
        return {"programs": [asked.program], "batch": batch}
    block = config.benchmarks.get(config.accept.train)
    if block is None:
        raise UserError(
            f"accept.train = {config.accept.train}: this block is not for the devices of this machine (only_on)",
            next_step="name a block for these devices, or set accept.train: null",
        )
    precision, sizes = next(iter(block.batch.items()))
    return {
        "model": block.model,
        "frameworks": block.frameworks[:1],
        "batch": {precision: sizes[:1]},
        "optimizer": block.optimizer,
        "options": replace(block.options, data="synthetic"),
        "seed": block.seed,
        "binding": block.binding,
        **block.own_values,
    }


def _alone(config: Config, what: str, block: dict[str, Any]) -> Config:
    """Return a configuration that has only this block, and the data sections that complete its model's parameters."""
    name = f"accept_{what.replace('-', '_')}"
    made = Config.model_validate({"benchmarks": {name: block}, "programs": config.programs})
    read = isinstance(config.accept.train, str) and what == "step"
    return made.model_copy(update=dict(config.data_sections())) if read else made
