"""Turn summaries into rows to show, in one order everywhere: what was asked for, and what came of it."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from throughline import workloads
from throughline.files import UserError
from throughline.records import Cell, Device, Summary
from throughline.report.analysis import advice, baseline, merged_notes, workload_figures
from throughline.spec import Precision, RunSpec, StepSize, Topology, canonical
from throughline.study.config import block_name
from throughline.study.section import Section

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")

NO_UNIT = "throughput"
"""Stands in place of a unit that neither a record nor the configuration states."""

NAMED = 6  # a warning about all cells of a table names no cell if the table has more than these

STATUS_LABELS = {"ok": "ok", "oom": "OOM", "unsupported": "n/a", "invalid": "invalid", "failed": "failed"}
"""The printed forms of statuses. `failed`: there is no record, because the run broke off or has not run yet."""

STATUS_MEANINGS = {
    "oom": "out of memory: the configuration does not fit this device",
    "unsupported": "this framework cannot do this here",
    "invalid": "the run ended, but its figures cannot be trusted",
    "failed": "no record: the run failed or has not run yet",
}


class Asked(Section):
    """The cells of one summary that the configuration asks for."""

    benchmark: str
    batch: int
    precision: Precision
    frameworks: list[str]
    topologies: list[str]
    repeats: int
    unit: str | None = None


def read_asked(text: str) -> list[Asked]:
    """Return the asked cells in a JSON list; UserError if the text is no such list."""
    try:
        return TypeAdapter(list[Asked]).validate_python(json.loads(text))
    except (json.JSONDecodeError, ValidationError) as error:
        raise UserError(
            "--expected is not a list of asked cells",
            why=str(error),
            next_step='write [{"benchmark": "bert", "batch": 32, "precision": "fp32", "frameworks": ["torch"], '
            '"topologies": ["1n1g", "1n2g"], "repeats": 5}]',
        ) from None


def asked_for(specs: Iterable[RunSpec]) -> str:
    """Return the cells of `specs` as the JSON that `read_asked` reads."""
    by_cell: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_cell.setdefault(spec.cell, []).append(spec)
    asked = [
        Asked(
            benchmark=runs[0].benchmark,
            batch=runs[0].batch,
            precision=runs[0].precision,
            frameworks=list(dict.fromkeys(run.framework for run in runs)),
            topologies=list(dict.fromkeys(str(run.topology) for run in runs)),
            repeats=max(run.repeat for run in runs),
            unit=f"{workloads.of(runs[0].model).unit}/s",
        )
        for runs in by_cell.values()
    ]
    return canonical([cell.model_dump() for cell in asked])


@dataclass(frozen=True)
class Row:
    """One framework on one topology. Without a cell, nothing was measured."""

    framework: str
    topology: Topology
    cell: Cell | None
    asked: bool = True
    exchanges: bool = True
    proof: str = ""

    @property
    def unequal(self) -> bool:
        """True if the numerical equivalence check forbids a comparison with other frameworks."""
        return self.proof in advice.UNEQUAL

    @property
    def doubt(self) -> str:
        """What the equivalence check says about a framework that it bars from comparisons."""
        if self.proof == "different":
            return "does not compute what the others do"
        why = advice.NOT_PROVEN.get(self.proof, "")
        return f"is not shown to compute what the others do{why and f': {why}'}"

    @property
    def shown(self) -> str:
        """The framework's name in a table, with a mark if an equivalence check bars it or its ranks do not exchange."""
        barred = (" (unequal)" if self.proof == "different" else " (unchecked)") if self.unequal else ""
        return self.framework + barred + ("" if self.exchanges else " (no exchange)")

    @property
    def status(self) -> str:
        """`ok` if at least one repeat is ok; else the status of most repeats; `failed` without a record."""
        if self.cell is None or not self.cell.statuses:
            return "failed"
        if self.cell.n_ok:
            return "ok"
        return max(self.cell.statuses, key=self.cell.statuses.__getitem__)

    @property
    def label(self) -> str:
        return STATUS_LABELS.get(self.status, self.status)


@dataclass(frozen=True)
class Group:
    """One benchmark, batch size and precision: its rows, and its summary if there is one."""

    benchmark: str
    batch: int
    precision: str
    rows: tuple[Row, ...]
    summary: Summary | None
    unit: str = NO_UNIT

    @property
    def per_device(self) -> bool:
        """True if `batch` is the batch of each device."""
        return self.summary is None or self.summary.batch_size_per_device is not None

    @property
    def strong(self) -> bool:
        """True if the devices of every topology share one total batch, so that speedups are those of strong scaling."""
        return self.summary is not None and self.summary.scaling == "strong"

    @property
    def batch_name(self) -> str:
        """`batch 32`, or `total batch 32` with strong scaling."""
        return f"{'total ' if self.strong else ''}batch {self.batch}"

    @property
    def batch_text(self) -> str:
        """`batch 32 per device`, or what else shares the batch."""
        if self.strong:
            return f"{self.batch_name}, strong scaling"
        return f"{self.batch_name} per " + ("device" if self.per_device else "replica")

    @property
    def by_iteration(self) -> bool:
        """True if published tables of its workload state single iterations.

        Then tables state the batch of a device and the global batch that an iteration trains on.
        """
        return self.summary is not None and workloads.of(self.summary.model).by_iteration

    @property
    def synthetic(self) -> bool:
        """True if its model reads synthetic data."""
        if self.summary is None or workloads.of(self.summary.model).data is None:
            return False
        return self.summary.options.data == "synthetic" or synthetic_files(self.summary)

    def size(self, row: Row) -> StepSize:
        """Return the size of a step on a row's topology."""
        return self.size_on(row.topology)

    def size_on(self, topology: Topology) -> StepSize:
        """Return the size of a step on any topology, also on one that was not measured.

        UserError if devices or batch do not divide equally there.
        """
        if not self.summary:
            return StepSize(topology.world, self.batch)
        options, samples = self.summary.options, self.summary.global_batch
        size = StepSize.of(topology, options.layout, self.batch, self.summary.scaling, options.gradient_accumulation)
        return size.accumulating(samples) if samples else size

    def together(self, cell: Cell) -> bool:
        """True if a step is one call that all devices of the cell make together, so that no device has a rate."""
        if self.summary is None or workloads.folder(self.summary.model) is None:
            return False
        return not workloads.of(self.summary.model).has_batch and cell.replicas < cell.world_size

    def batch_per_replica(self, row: Row) -> int:
        """Return how many samples a replica computes at once on a row's topology."""
        return self.size(row).batch_per_replica

    def batch_of(self, *rows: Row) -> str:
        """Return the batch of these rows as a table states it: one number, or that of a device and the global one."""
        if not self.by_iteration:
            return str(self.batch)
        sizes = [self.size(row) for row in rows]
        each, every = [size.batch_per_replica for size in sizes], [size.global_batch for size in sizes]
        return " / ".join(", ".join(dict.fromkeys(map(str, numbers))) for numbers in (each, every))

    @property
    def name(self) -> str:
        """The summary's name, such as `bz32_fp32`."""
        return f"bz{self.batch}_{self.precision}"

    @property
    def exchanges(self) -> bool:
        """True if its ranks exchange gradients. Without that, they do not train one model together."""
        return self.summary is None or self.summary.options.gradient_sync

    @property
    def frameworks(self) -> list[str]:
        return list(dict.fromkeys(row.framework for row in self.rows))

    def series(self, framework: str) -> list[Row]:
        """Return the measured rows of one framework, smallest topology first."""
        return [row for row in self.rows if row.framework == framework and row.cell and row.cell.n_ok]

    @property
    def measured(self) -> list[Row]:
        """Measured rows of all frameworks, one framework after the other."""
        return [row for framework in self.frameworks for row in self.series(framework)]

    def facts(self, row: Row) -> dict[str, Any]:
        """Return the device, the environment and the data of a row, by dotted keys."""
        if self.summary is None or row.cell is None:
            return {}
        return self._facts[row.framework] | (row.cell.ran_in or {})

    def device(self, row: Row) -> Device | None:
        """Return the device of a row's kept runs; of another one than the summary's, fp16_native is not known."""
        stated, facts = self.summary.device if self.summary else None, self.facts(row)
        found = {key: facts.get(f"device.{key}") for key in ("kind", "name")}
        if stated is None or None in found.values() or found == {"kind": stated.kind, "name": stated.name}:
            return stated
        return stated.model_copy(update={**found, "fp16_native": None})

    @property
    def devices(self) -> list[str]:
        """The names of the devices of all measured rows."""
        found = [self.device(row) for row in self.measured]
        return list(dict.fromkeys(device.name for device in found if device))

    @cached_property
    def _facts(self) -> dict[str, dict[str, Any]]:
        """The facts of each framework, without what a cell states otherwise."""
        summary = self.summary
        if summary is None:
            return {}
        return {
            name: advice.facts(summary.device, summary.environment.get(name) or {}, summary.data)
            for name in self.frameworks
        }

    def row(self, framework: str, topology: Topology) -> Row | None:
        return next((row for row in self.rows if (row.framework, row.topology) == (framework, topology)), None)


def groups(summaries: Collection[Summary], asked: Sequence[Asked] | None = None) -> list[Group]:
    """Return the groups, sorted by benchmark, then precision, then batch. `asked` adds the cells without a record."""
    summarized = {(s.benchmark, s.precision, s.batch): s for s in summaries}
    wanted = {(a.benchmark, a.precision, a.batch): a for a in asked or ()}
    benchmarks = list(dict.fromkeys(key[0] for key in (*wanted, *summarized)))
    keys = sorted({*summarized, *wanted}, key=lambda key: (benchmarks.index(key[0]), PRECISIONS.index(key[1]), key[2]))
    units = {a.benchmark: a.unit for a in asked or () if a.unit} | {s.benchmark: s.unit for s in summaries}
    # Derived benchmarks have no equivalence check of their own, so verdicts are kept by block and precision.
    proofs: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for s in summaries:
        for name, proof in (s.equivalence or {}).items():
            known = proofs[block_name(s.benchmark), s.precision]
            if known.get(name) not in advice.UNEQUAL:
                known[name] = proof.verdict
    return [
        Group(name, batch, precision,
              tuple(_rows(summarized.get(key), wanted.get(key), proofs[block_name(name), precision])),
              summarized.get(key), units.get(name, NO_UNIT))
        for key in keys for name, precision, batch in [key]
    ]  # fmt: skip


def _rows(summary: Summary | None, asked: Asked | None, proofs: Mapping[str, str]) -> Iterable[Row]:
    measured = summary.frameworks if summary else {}
    frameworks = list(dict.fromkeys([*(asked.frameworks if asked else ()), *measured]))
    exchanges = summary.options.gradient_sync if summary else True
    for framework in frameworks:
        cells = measured.get(framework, {})
        wanted = set(asked.topologies) if asked and framework in asked.frameworks else set()
        topologies = {Topology.parse(name) for name in {*cells, *wanted}}
        for topology in sorted(topologies, key=lambda t: (t.world, t)):
            cell, name = cells.get(str(topology)), str(topology)
            marked = replace(topology, simulated=cell is not None and cell.simulated)
            yield Row(framework, marked, cell, not asked or name in wanted, exchanges, proofs.get(framework, ""))


def synthetic_files(summary: Summary) -> bool:
    """True if a summary's runs read synthetic files."""
    read = [str((built or {}).get("data")) for built in (summary.settings or {}).values()]
    return summary.options.data == "real" and any("synthetic" in how for how in read)


CHECKPOINTED = {True: "W/ checkpointing", "selective": "W/ selective checkpointing"}


def switches(summary: Summary) -> str:
    """Return what is on and off in DLPerf's words, such as `W/O compile & W/O clip & W/O checkpointing`."""
    options = summary.options
    always = [
        _compiling(summary) if options.compile == "auto" else "W/ compile" if options.compile else "W/O compile",
        "W/O clip" if options.clip == "none" else f"W/ clip by {options.clip.replace('_', ' ')}",
        "W/O checkpointing" if not options.activation_checkpointing else CHECKPOINTED[options.activation_checkpointing],
    ]
    emulate = emulating(summary)
    unusual = {
        "W/ CUDA graph of the whole step": options.cuda_graph == "step",
        "W/O padding": options.remove_padding is True,
        "W/O padding where a GPU can leave it out": options.remove_padding == "auto",
        f"W/ accumulation of {options.gradient_accumulation}": options.gradient_accumulation > 1,
        f"W/ accumulation to {summary.global_batch or 0:,} samples": summary.global_batch is not None,
        "W/O exchange of gradients": not options.gradient_sync,
        f"W/ exchange in {options.reduce_dtype}": options.reduce_dtype != "fp32",
        f"W/ sharding: {options.sharding}": options.sharding != "none",
        f"W/ sharding in {_groups(options.hybrid_shard_groups)}": options.hybrid_shard_groups != 1,
        f"W/ products in fp32, rounded to {summary.precision}, in {', '.join(emulate)}": bool(emulate),
        f"W/ fp8 scaled {options.fp8_scaling}": summary.precision == "fp8" and workloads.of(summary.model).trains,
        f"W/ tensor parallelism over {options.tensor_parallel} devices": options.tensor_parallel > 1,
        f"W/ experts spread over {options.expert_parallel} devices": options.expert_parallel > 1,
        f"W/ {options.data} data": options.data != "real",
        "W/ synthetic files": synthetic_files(summary),
    }
    return " & ".join([*always, *(words for words, holds in unusual.items() if holds)])


def _groups(hybrid_shard_groups: int | str) -> str:
    return "each node" if hybrid_shard_groups == "nodes" else f"{hybrid_shard_groups} groups"


def eager(summary: Summary) -> dict[str, str]:
    """Map each framework whose runs left the model eager to the reason, if the summary's `compile` is `auto`."""
    told = {name: str((built or {}).get("compiling", "")) for name, built in (summary.settings or {}).items()}
    return {name: words for name, words in told.items() if words.startswith("not compiled")}


def _compiling(summary: Summary) -> str:
    """Return what `compile: auto` did: with or without, and for which frameworks if they differ."""
    built = [name for name, settings in (summary.settings or {}).items() if settings]
    left = [name for name in built if name in eager(summary)]
    if not built:
        return "compile: auto"
    if left and len(left) < len(built):
        return f"W/ compile (auto), but W/O compile in {', '.join(left)}"
    return f"{'W/O' if left else 'W/'} compile (auto)"


def emulating(summary: Summary | None) -> list[str]:
    """Return the frameworks that multiply in fp32 because the device has no units for the precision."""
    told = (summary and summary.settings) or {}
    return [name for name, settings in told.items() if (settings or {}).get("emulated_products")]


def title(group: Group) -> str:
    """Return a table's title as DLPerf writes it."""
    start = f"{'Total batch' if group.strong else 'Batch'} size = {group.batch}, {group.precision}"
    start += ", strong scaling" if group.strong else ""
    if group.summary is None:
        return start
    parts = start, workload_figures.titled(group.summary), switches(group.summary)
    return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Note:
    """A reason or a warning, and the rows it is about."""

    where: str
    text: str
    kind: str


def notes(group: Group) -> list[Note]:
    """Return the reasons and warnings of all cells. Texts of several cells that differ only in numbers are one note."""
    told: dict[tuple[str, str], list[tuple[Row, str]]] = {}
    for row in group.rows:
        if row.cell:
            for kind, texts in (("reason", row.cell.reasons), ("warning", row.cell.warnings)):
                for text in texts:
                    told.setdefault((kind, merged_notes.form(text)), []).append((row, text))
    of_cells = [
        Note(_place(group, [row for row, _ in same]), next(merged_notes.merged(text for _, text in same)), kind)
        for (kind, _), same in told.items()
    ]
    return [*_moved_baselines(group), *of_cells]


def _moved_baselines(group: Group) -> list[Note]:
    """Return a note for each framework whose speedups are not relative to one device."""
    baselines = group.summary.baselines if group.summary else {}
    text = "its speedups are relative to {}, the smallest topology on which the model's layout is possible"
    return [Note(name, text.format(base), "reason") for name, base in baselines.items() if base != baseline.ONE_DEVICE]


def _place(group: Group, rows: Sequence[Row]) -> str:
    """Name these cells; if they are all cells of a large table, return how many they are."""
    every = {str(row.topology) + row.framework for row in rows}
    known = sum(row.cell is not None for row in group.rows)
    return f"all {known} cells" if len(every) == known > NAMED else _where(rows)


def _where(rows: Iterable[Row]) -> str:
    """Name the cells of these rows, such as `torch 1n1g, 1n2g; mxnet-horovod 1n1g`."""
    by_framework: dict[str, dict[str, None]] = {}
    for row in rows:
        by_framework.setdefault(row.framework, {})[str(row.topology)] = None
    return "; ".join(f"{framework} {', '.join(topologies)}" for framework, topologies in by_framework.items())
