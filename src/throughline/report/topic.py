"""Define a topic: one thing that the report tells about a benchmark, in all its forms.

A topic is one file in topics/, which goes from records to figures, and from figures to these forms. The code of the
page, the tables and the plots loops over all topics and names none.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure as Plot

from throughline.comparables import plausibility, published
from throughline.comparables.plausibility import Doubt
from throughline.comparables.published import SimilarResult
from throughline.grouping import grouped
from throughline.records import MaxBatch, PredictedSeries, Predictions, Result
from throughline.report.analysis import judged_pairs, slow_ranks
from throughline.report.analysis.advice import Note
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.comparison import Pair
from throughline.report.analysis.titles import switches
from throughline.report.render.plots import Theme
from throughline.report.render.tables import Table
from throughline.spec.program import DECIDES

UNITS = ("samples/s", "images/s")
"""The units of the cells that are compared with results of others."""
SYNTHETIC = "synthetic data"
"""The mark on tables and plots of runs that did not train on real data."""


@dataclass(frozen=True)
class Scope:
    """What a topic is about: the groups of one benchmark.

    everything: the groups that it may be compared with. largest, checks: its searches for the largest batch and its
    convergence checks. imported: results from logs of others. predictions: its predictions, if the
    configuration asks for some.
    """

    groups: Sequence[Group]
    everything: Sequence[Group] = ()
    largest: Sequence[MaxBatch] = ()
    checks: Sequence[Any] = ()
    imported: Sequence[Result] = ()
    predictions: Predictions | None = None

    @property
    def benchmark(self) -> str:
        return self.groups[0].benchmark if self.groups else ""

    @property
    def cells(self) -> list[Cell]:
        return [cell for group in self.groups for cell in group.cells]

    @property
    def measured(self) -> list[Cell]:
        """The cells with figures."""
        return [cell for group in self.groups for cell in group.measured]

    @cached_property
    def best(self) -> Cell | None:
        """The fastest usable cell of those that the equivalence checks do not bar."""
        return judged_pairs.usable([cell for cell in self.measured if not cell.barred], self.pairs)

    @property
    def synthetic(self) -> bool:
        """True if every table and plot has to say that the data are synthetic."""
        return any(group.synthetic for group in self.groups)

    @property
    def marks(self) -> list[str]:
        """The lines below every table: the benchmark's remarks, and that the data are synthetic."""
        remarks = dict.fromkeys(group.summary.remarks for group in self.groups if group.summary.remarks)
        return [*remarks, *[SYNTHETIC] * self.synthetic]

    def predicted(self, group: Group) -> list[PredictedSeries]:
        """The predictions of a group's frameworks. They were never measured."""
        known = self.predictions.series if self.predictions else []
        return [series for series in known if (series.batch, series.precision) == (group.batch, group.precision)]

    @cached_property
    def pairs(self) -> list[Pair]:
        """All comparisons of the benchmark, with their verdicts."""
        return judged_pairs.judge(self.groups, self.everything)

    @cached_property
    def ranks(self) -> list[slow_ranks.RankStanding]:
        """All ranks of the benchmark's cells beside the other ranks of their cell, judged together."""
        return slow_ranks.standings(self.groups, self.everything)

    @cached_property
    def results(self) -> dict[Cell, Result]:
        """The measured cells as rows, in the form in which they are compared with results of others.

        A cell with a unit or a model of its own, reading alone, or with simulated nodes has none.
        """
        ours = (cell for cell in self.measured if not cell.group.reads_alone and not cell.record.simulated)
        known = (cell for cell in ours if cell.group.unit in UNITS and cell.group.summary.model != DECIDES)
        return {cell: _row(cell) for cell in known}

    @cached_property
    def similar(self) -> list[tuple[Cell, SimilarResult]]:
        """The cells of this benchmark, each with the results of others that are like it."""
        others = grouped([*self.imported, *published.rows()], lambda row: (row.model, row.devices))
        return [(cell, result) for cell, row in self.results.items() for result in published.similar(row, others)]

    @cached_property
    def doubts(self) -> list[Doubt]:
        """Doubts about the benchmark's own rows and the imported ones.

        The largest matrix product of the same runs is a row of its own, which no training should exceed.
        """
        rows = []
        for cell, row in self.results.items():
            rows.append(row)
            if (work := cell.record.work) and work.matmul_flops_per_s:
                value = repr(work.matmul_flops_per_s / 1e12)
                product = {"model": "matmul", "value": value, "unit": "TFLOPS", "repeats": None}
                rows.append(row.model_copy(update=product))
        return plausibility.doubts([*rows, *self.imported])


@dataclass(frozen=True)
class Drawing:
    """A plot: `name` names its file, and `draw` draws it in a theme.

    It stands beside the table of `group`, or without a group in the section of its topic. in_files, on_page: whether it
    is written as a file and shown on the page.
    """

    name: str
    title: str
    draw: Callable[[Theme], Plot]
    group: Group | None = None
    in_files: bool = True
    on_page: bool = True


@dataclass(frozen=True)
class Topic:
    """The forms of one topic. `name` names its files and its place on the page; `intro` stands below its title.

    order: topics stand in the order of this number
    table: its table, on the page and in files
    csv: the table of its CSV file, if that has other lines
    text: its tables in Markdown and LaTeX, if they are others; otherwise it has no LaTeX
    drawings: its plots
    notes: sentences below the table of a group
    """

    name: str
    title: str
    intro: str = ""
    order: int = 0
    table: Callable[[Scope], Table | None] = field(default=lambda scope: None)
    csv: Callable[[Scope], Table | None] = field(default=lambda scope: None)
    text: Callable[[Scope], Sequence[Table]] = field(default=lambda scope: ())
    drawings: Callable[[Scope], Iterable[Drawing]] = field(default=lambda scope: ())
    notes: Callable[[Scope, Group], Iterable[Note]] = field(default=lambda scope, group: ())


def section(
    topic: Topic, table: Table | None, remarks: Iterable[str] = (), drawn: Sequence[Markup] = ()
) -> dict[str, Any]:
    """Return a topic as the page prints it."""
    return {"topic": topic, "table": table, "plots": drawn, "remarks": list(remarks)}


def _row(cell: Cell) -> Result:
    """Return a cell as a row of results, unrounded."""
    group, summary, record = cell.group, cell.group.summary, cell.record
    parameters = dict(summary.parameters)
    length = parameters.pop("sequence_length", None)
    libraries = (summary.environment.get(cell.framework) or {}).get("framework") or {}
    return Result(
        origin="measured",
        source=f"{group.benchmark} {group.name}",
        date=(record.started or "")[:10] or None,
        framework=cell.framework,
        software=", ".join(f"{name} {version}" for name, version in libraries.items()) or None,
        model=summary.model,
        parameters=parameters,
        sequence_length=length if isinstance(length, int) else None,
        precision=group.precision,  # type: ignore[arg-type]
        device=cell.facts.get("device.name"),
        nodes=cell.topology.nodes,
        devices=cell.topology.world,
        batch=record.batch_size_per_device,
        gradient_accumulation=cell.size.gradient_accumulation,
        global_batch=record.global_batch,
        options=switches(summary),
        convention=f"median of {record.n_ok} runs",
        value=repr(cell.median),
        unit=group.unit,  # type: ignore[arg-type]
        repeats=(min(cell.repeats), max(cell.repeats)) if record.n_ok > 1 else None,
    )
