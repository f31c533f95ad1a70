"""Cells: one framework on one topology each, in one order everywhere. What was asked for, and what came of it."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter, ValidationError

from throughline import workloads
from throughline.files import UserError
from throughline.grouping import grouped
from throughline.numbers import counted
from throughline.records import CellRecord, Device, Summary
from throughline.report.analysis import advice, cost, differences, summary
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.spec import Batch, RunSpec, StepSize, Topology, canonical
from throughline.spec.program import DECIDES
from throughline.study.config import block_name
from throughline.study.runs import Specification
from throughline.study.section import Section

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", DECIDES)

STATUS_LABELS = {"ok": "ok", "oom": "OOM", "unsupported": "n/a", "invalid": "invalid", "failed": "failed"}
"""The printed forms of statuses. `failed`: there is no record, because the run broke off or has not run yet."""

STATUS_MEANINGS = {
    "oom": "out of memory: the configuration does not fit this device",
    "unsupported": "this framework cannot do this here",
    "invalid": "the run ended, but its figures cannot be trusted",
    "failed": "no record: the run failed or has not run yet",
}


class Asked(Section):
    """The cells of one summary that the configuration asks for. spec: the specification of one of their runs."""

    spec: Specification
    frameworks: list[str]
    topologies: list[str]
    repeats: int


def read_asked(text: str) -> list[Asked]:
    """Return the asked cells in a JSON list; UserError if the text is no such list."""
    try:
        return TypeAdapter(list[Asked]).validate_python(json.loads(text))
    except (json.JSONDecodeError, ValidationError) as error:
        raise UserError(
            "--expected is not a list of asked cells",
            why=str(error),
            next_step='write [{"spec": {...}, "frameworks": ["torch"], "topologies": ["1n1g", "1n2g"], "repeats": 5}], '
            "with the specification of a run of these cells, as its record has it",
        ) from None


def asked_for(specs: Iterable[RunSpec]) -> str:
    """Return the cells of `specs` as the JSON that `read_asked` reads."""
    return canonical([
        {
            "spec": runs[0].changed(),
            "frameworks": list(dict.fromkeys(run.framework for run in runs)),
            "topologies": list(dict.fromkeys(str(run.topology) for run in runs)),
            "repeats": max(run.repeat for run in runs),
        }
        for runs in grouped(specs, lambda spec: spec.cell).values()
    ])  # fmt: skip


@dataclass(frozen=True, eq=False)
class Cell:
    """One framework on one topology of a group. `record` has no repeats if nothing ran."""

    group: "Group"
    framework: str
    topology: Topology
    record: CellRecord

    @property
    def ok(self) -> bool:
        """True if at least one repeat is ok, so that there are figures."""
        return self.record.n_ok > 0

    @property
    def median(self) -> float:
        """The median throughput in the unit of the group. LookupError without a valid repeat."""
        if self.record.median_speed is None:
            raise LookupError(f"{self.name} has no median")
        return self.record.median_speed

    @property
    def repeats(self) -> tuple[float, ...]:
        """The throughputs of the valid repeats."""
        return tuple(value for value in self.record.values if value is not None)

    @property
    def step_seconds(self) -> dict[int, float]:
        """The seconds per optimizer step of each valid repeat."""
        return {repeat: self.record.global_batch / value for repeat, value in enumerate(self.record.values, 1) if value}

    @property
    def start_seconds(self) -> dict[int, float]:
        """The seconds from the command to the end of the first step, of each valid repeat that tells them."""
        return {repeat: part.total_s for repeat, part in enumerate(self.record.start_up or (), 1) if part}

    def figure(self, name: str, at: float | str | None = None) -> float | None:
        """Return the median of a figure at one size; None if it is not known."""
        return next((each.value for each in self.record.figures if (each.name, each.at) == (name, at)), None)

    @property
    def status(self) -> str:
        """`ok` if at least one repeat is ok; else the status of most repeats; `failed` without a record."""
        statuses = self.record.statuses
        return "ok" if self.ok else max(statuses, key=statuses.__getitem__, default="failed")

    @property
    def label(self) -> str:
        return STATUS_LABELS.get(self.status, self.status)

    @property
    def equivalence(self) -> str:
        """The verdict of the framework's equivalence check; empty without one."""
        return self.group.verdicts.get(self.framework, "")

    @property
    def barred(self) -> bool:
        """True if the numerical equivalence check forbids a comparison with other frameworks."""
        return self.equivalence in advice.UNEQUAL

    @property
    def doubt(self) -> str:
        """What the equivalence check says about a framework that it bars from comparisons."""
        if self.equivalence == "different":
            return "does not compute what the others do"
        why = advice.NOT_CHECKED.get(self.equivalence, "")
        return f"is not shown to compute what the others do{why and f': {why}'}"

    @property
    def shown(self) -> str:
        """The framework's name in a table, with a mark if an equivalence check bars it or its ranks do not exchange."""
        mark = (" (unequal)" if self.equivalence == "different" else " (unchecked)") if self.barred else ""
        return self.framework + mark + (f" ({self.group.mark})" if self.group.mark else "")

    @property
    def name(self) -> str:
        return f"{self.shown} {self.topology}"

    @property
    def where(self) -> str:
        """Its framework, topology, precision and batch in words."""
        return f"{self.shown} {self.place}"

    @property
    def place(self) -> str:
        """Its topology, precision and batch in words."""
        return ", ".join([str(self.topology), *self.group.stated(self.group.batch_name)])

    @property
    def devices(self) -> str:
        """Its devices in words, such as `32 devices (4n8g)`."""
        return f"{counted(self.topology.world, 'device')} ({self.topology})"

    @property
    def baseline(self) -> str:
        """The topology that its framework's speedups are relative to."""
        return self.group.summary.baselines.get(self.framework, ONE_DEVICE)

    @property
    def scales(self) -> bool:
        """True if it is on another topology than the baseline of its speedup."""
        return str(self.topology) != self.baseline

    @property
    def no_speedup(self) -> str:
        """Why it has no speedup or efficiency; empty if it has."""
        if not self.scales:
            return "" if self.topology.world == 1 else "it is the baseline of its own speedups"
        if self.record.speedup is not None:
            return ""
        base = self.group.cell(self.framework, self.baseline)
        if base is None:
            return f"there are no runs on its baseline, {self.baseline}"
        return f"its baseline, {self.baseline}, " + ("ran in another environment" if base.ok else "has no valid repeat")

    @property
    def beyond_devices(self) -> bool:
        """True if it is faster than its devices can make it. With strong scaling, smaller batches may be the reason."""
        return not self.group.strong and advice.beyond_devices(self.record)

    @property
    def size(self) -> StepSize:
        """The size of a step."""
        return self.group.size_on(self.topology)

    @property
    def batch(self) -> str:
        """The batch as a table states it: one number, or that of a device and the global one."""
        if not self.group.by_iteration:
            return str(self.group.batch)
        return f"{self.size.batch_per_replica} / {self.size.global_batch}"

    @property
    def together(self) -> bool:
        """True if a step is one call that all devices make together, so that no device has a rate."""
        model = self.group.summary.model
        has_batch = workloads.folder(model) is None or workloads.of(model).has_batch
        return not has_batch and self.record.replicas < self.record.world_size

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The device, the environment and the data, by dotted keys; empty without a record."""
        summary = self.group.summary
        if not self.record.statuses:
            return {}
        environment = summary.environment.get(self.framework) or {}
        return differences.by_key(summary.device, environment, summary.data) | (self.record.ran_in or {})

    @property
    def device(self) -> Device | None:
        """The device of the kept runs; of another one than the summary's, fp16_native is not known."""
        stated = self.group.summary.device
        found = {key: self.facts.get(f"device.{key}") for key in ("kind", "name")}
        if stated is None or None in found.values() or found == {"kind": stated.kind, "name": stated.name}:
            return stated
        return stated.model_copy(update={**found, "fp16_native": None})

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of its framework, as read from the model that it built; empty without them."""
        return (self.group.summary.settings or {}).get(self.framework) or {}


@dataclass(frozen=True, eq=False)
class Group:
    """All cells of one benchmark, batch size and precision, which have one summary.

    asked: what the configuration asks for, if that is known. verdicts: those of the equivalence checks, by framework.
    """

    summary: Summary
    asked: Asked | None = None
    verdicts: Mapping[str, str] = field(default_factory=dict)

    @property
    def benchmark(self) -> str:
        return self.summary.benchmark

    @property
    def batch(self) -> Batch:
        return self.summary.batch

    @property
    def precision(self) -> str:
        return self.summary.precision

    @property
    def unit(self) -> str:
        return self.summary.unit

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell that was measured or asked for: by framework, then by size."""
        asked, measured, cells = self.asked, self.summary.frameworks, list[Cell]()
        for framework in dict.fromkeys([*(asked.frameworks if asked else ()), *measured]):
            records = measured.get(framework, {})
            wanted = set(asked.topologies) if asked and framework in asked.frameworks else set()
            topologies = {Topology.parse(name) for name in {*records, *wanted}}
            for topology in sorted(topologies, key=lambda t: (t.world, t)):
                record = records.get(str(topology)) or _not_run(asked.repeats if asked else 1, topology)
                cells.append(Cell(self, framework, replace(topology, simulated=record.simulated), record))
        return cells

    @cached_property
    def measured(self) -> list[Cell]:
        """The cells with figures, one framework after the other."""
        return [cell for cell in self.cells if cell.ok]

    @property
    def frameworks(self) -> list[str]:
        return list(dict.fromkeys(cell.framework for cell in self.cells))

    def series(self, framework: str) -> list[Cell]:
        """Return the measured cells of one framework, smallest topology first."""
        return [cell for cell in self.measured if cell.framework == framework]

    def cell(self, framework: str, topology: Topology | str) -> Cell | None:
        named = framework, str(topology)
        return next((cell for cell in self.cells if (cell.framework, str(cell.topology)) == named), None)

    @property
    def name(self) -> str:
        """The summary's name, such as `bz32_fp32`."""
        return f"bz{self.batch}_{self.precision}"

    @property
    def per_device(self) -> bool:
        """True if `batch` is the batch of each device."""
        return self.summary.batch_size_per_device is not None

    @property
    def strong(self) -> bool:
        """True if the devices of every topology share one total batch, so that speedups are those of strong scaling."""
        return self.summary.scaling == "strong"

    @property
    def batch_name(self) -> str:
        """`batch 32`, or `total batch 32` with strong scaling."""
        if self.batch == DECIDES:
            return "the program's batch"
        return f"{'total ' if self.strong else ''}batch {self.batch}"

    @property
    def batch_text(self) -> str:
        """`batch 32 per device`, or what else shares the batch."""
        if self.strong:
            return f"{self.batch_name}, strong scaling"
        return f"{self.batch_name} per {'device' if self.per_device else 'replica'}"

    @property
    def settings(self) -> str:
        """What the title of a plot says of it: precision, batch, and whether its ranks do less than training."""
        stated = [*self.stated(self.batch_text), *filter(None, [self.mark])]
        return ", ".join(stated) or "precision and batch of the program"

    def stated(self, batch: str) -> list[str]:
        """Return the precision, and the batch in the words `batch`; without what a program decides itself."""
        words = [(self.precision, self.precision), (batch, self.batch)]
        return [word for word, value in words if value != DECIDES]

    @property
    def by_iteration(self) -> bool:
        """True if published tables of its workload state single iterations.

        Then tables state the batch of a device and the global batch that an iteration trains on.
        """
        return workloads.of(self.summary.model).by_iteration

    @property
    def trains(self) -> bool:
        """False if its workload makes single calls only."""
        return workloads.trains(self.summary.model)

    @property
    def exchanges(self) -> bool:
        """True if its ranks exchange gradients. Without that, they do not train one model together."""
        return not self.mark

    @property
    def mark(self) -> str:
        """What its ranks do instead of training one model together; empty if they do that."""
        return "reading alone" if self.reads_alone else "" if self.summary.options.gradient_sync else "no exchange"

    @property
    def reads_alone(self) -> bool:
        """True if its ranks read and train nothing."""
        return self.summary.options.data == "reading"

    @property
    def synthetic(self) -> bool:
        """True if its model reads synthetic data."""
        if workloads.of(self.summary.model).data is None:
            return False
        return self.summary.options.data == "synthetic" or synthetic_files(self.summary)

    def size_on(self, topology: Topology) -> StepSize:
        """Return the size of a step on any topology, also on one that was not measured.

        UserError if devices or batch do not divide equally there, or if only a program knows the size.
        """
        if self.summary.model == DECIDES:
            return self._size_of_program(topology)
        options, samples = self.summary.options, self.summary.global_batch
        size = StepSize.of(
            topology, options.layout, int(self.batch), self.summary.scaling, options.gradient_accumulation
        )
        return size.accumulating(samples) if samples else size

    def _size_of_program(self, topology: Topology) -> StepSize:
        """Return the size of a program's step: the measured one, or what every measured topology has on a device."""
        known = {cell.topology.world: cell.record.global_batch for cell in self.measured}
        each = {samples / world for world, samples in known.items()}
        if topology.world in known:
            return StepSize(1, known[topology.world])
        if len(each) != 1:
            raise UserError(f"how much a program trains in a step on {topology} is not known")
        return StepSize(topology.world, round(each.pop()))

    @property
    def devices(self) -> list[str]:
        """The names of the devices of all measured cells."""
        return list(dict.fromkeys(cell.device.name for cell in self.measured if cell.device))


def groups(summaries: Collection[Summary], asked: Sequence[Asked] | None = None) -> list[Group]:
    """Return the groups, sorted by benchmark, then precision, then batch. `asked` adds the cells without a record."""
    wanted = {(a.spec.benchmark, a.spec.precision, a.spec.batch): a for a in asked or ()}
    known = {key: summary.without_runs(a.spec) for key, a in wanted.items()}
    known |= {(s.benchmark, s.precision, s.batch): s for s in summaries}
    benchmarks = list(dict.fromkeys(key[0] for key in known))
    # Derived benchmarks have no equivalence check of their own, so verdicts are kept by block and precision.
    verdicts: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for s in summaries:
        for name, check in (s.equivalence or {}).items():
            stated = verdicts[block_name(s.benchmark), s.precision]
            if stated.get(name) not in advice.UNEQUAL:
                stated[name] = check.verdict

    def order(key: tuple[str, str, Batch]) -> tuple[int, int, float]:
        benchmark, precision, batch = key
        return benchmarks.index(benchmark), PRECISIONS.index(precision), batch if isinstance(batch, int) else math.inf

    return [
        Group(known[key], wanted.get(key), verdicts[block_name(key[0]), key[1]]) for key in sorted(known, key=order)
    ]


def _not_run(repeats: int, topology: Topology) -> CellRecord:
    """Return the record of a cell without any run: no figure is known."""
    known: dict[str, Any] = dict.fromkeys(CellRecord.model_fields)
    known |= {"reasons": [], "warnings": [], "logs": [], "left_out": [], "figures": [], "statuses": {}}
    known |= {"values": [None] * repeats, "starts": [None] * repeats, "n": repeats, "n_ok": 0, "other_units": {}}
    known |= {"simulated": False, "world_size": topology.world}
    known["cost"] = cost.of(None, topology.world, "nothing ran", None)
    return CellRecord.model_construct(**known)


def real(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells whose nodes are not simulated; all of them if there are no others."""
    cells = list(cells)
    return [cell for cell in cells if not cell.record.simulated] or cells


def in_rounds(cells: Iterable[Cell]) -> bool:
    """True if repeat k of all cells ran before repeat k + 1 of any, and all cells have the same valid repeats.

    This is the design of the repeats. It asks when they ran and whether they are valid, and never how fast they were.
    """
    begun = [{number: start for number, start in enumerate(cell.record.starts, 1) if start} for cell in cells]
    if not any(begun) or any(starts.keys() != begun[0].keys() for starts in begun):
        return False
    rounds = [[starts[number] for starts in begun] for number in begun[0]]
    return all(max(before) <= min(after) for before, after in pairwise(rounds))


def synthetic_files(summary: Summary) -> bool:
    """True if a summary's runs read synthetic files."""
    read = [str((built or {}).get("data")) for built in (summary.settings or {}).values()]
    return summary.options.data != "synthetic" and any("synthetic" in how for how in read)
