"""What single calls reach in workloads that train nothing: tables, curves over their sizes, and a roofline.

Every figure has its size, the datasheet's peak, and the largest matrix product of the same run. If one report has a
model and its layers alone, a table compares a training step with them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from throughline import gpus, workloads
from throughline.grouping import grouped
from throughline.numbers import percent, reading
from throughline.report.analysis.cells import PRECISIONS, Cell, Group
from throughline.report.render import plots as draws
from throughline.report.render.table_files import IDENTITY
from throughline.report.render.tables import PAGE, PEOPLE, Column, Table, in_csv
from throughline.report.topic import Drawing, Scope, Topic
from throughline.spec import example
from throughline.workloads import layers


@dataclass(frozen=True)
class Reached:
    """One figure at one size, in its own unit. If it is not `sized`, its size is the batch.

    theory: the datasheet's peak. product: the largest matrix product of the same run at the same precision. intensity:
    FLOPs per byte. Each is None if there is none.
    """

    cell: Cell
    device: str
    name: str
    size: int
    sized: bool
    unit: str
    value: float
    peak: str | None
    theory: float | None
    product: float | None
    intensity: float | None

    @property
    def model(self) -> str:
        return self.cell.group.summary.model

    @property
    def share(self) -> float | None:
        return self.value / self.theory if self.theory else None

    @property
    def share_of_product(self) -> float | None:
        return self.value / self.product if self.product else None


def reached(groups: Iterable[Group]) -> list[Reached]:
    """Return every figure with a value of the groups whose workload trains nothing."""
    return [call for group in groups if not group.trains for cell in group.measured for call in _of_cell(cell)]


def best(every: Iterable[Reached]) -> list[Reached]:
    """Return one figure per device, test, precision and framework, on the smallest topology.

    It is that of the largest size, which no cache holds, or of the fastest batch.
    """

    def test(call: Reached) -> tuple[str, ...]:
        return call.device, call.model, call.name, call.cell.group.precision, call.cell.framework

    return [
        max(calls, key=lambda call: (-call.cell.topology.world, call.size if call.sized else 0, call.value))
        for calls in grouped(every, test).values()
    ]


def _of_cell(cell: Cell) -> Iterator[Reached]:
    group, work = cell.group, cell.record.work
    workload = workloads.of(group.summary.model)
    peaks = {figure.name: figure.peak for figure in workload.figures}
    parameters = workload.parameters(**group.summary.parameters)
    spec = example(group.summary.model, parameters, precision=group.precision, batch=group.batch)
    device = cell.device.name if cell.device else "unknown device"
    gpu = gpus.find(device)
    theory = {"memory": gpu.memory_bytes_per_s / 1e9} if gpu and gpu.memory_bytes_per_s else {}
    if work and work.datasheet_flops_per_s:
        theory["flops"] = work.datasheet_flops_per_s / 1e12
    for figure in (figure for figure in cell.record.figures if figure.value is not None):
        peak = peaks.get(figure.name)
        product = work.matmul_flops_per_s if work and peak == "flops" else None
        yield Reached(
            cell=cell,
            device=device,
            name=figure.name,
            sized=figure.at is not None,
            size=int(group.batch) if figure.at is None else int(figure.at),
            unit=figure.unit,
            value=figure.value or 0.0,
            peak=peak,
            theory=theory.get(peak or ""),
            product=product and product / 1e12,
            intensity=workload.intensity(spec, figure.name, figure.at),
        )


NOTES = (
    "The size is that of a matrix, a vector, a copy or a collective operation (bytes), and of a layer the batch.",
    "Theory is the datasheet's dense peak, or the rate of its memory. The largest product is a matrix product that the "
    "same run measured at the same precision.",
)


def _test(call: Reached) -> str:
    return call.model if call.name == call.model else f"{call.model}, {call.name.replace('_', ' ')}"


COLUMNS = (
    in_csv("benchmark", lambda call: call.cell.group.benchmark),
    in_csv("model", lambda call: call.model),
    in_csv("device", lambda call: call.device),
    Column(heading="test", read=_test, forms=PEOPLE),
    Column("precision", "precision", read=lambda call: call.cell.group.precision),
    Column(heading="framework", read=lambda call: call.cell.shown, forms=PEOPLE),
    in_csv("framework", lambda call: call.cell.framework),
    Column("topology", "topology", read=lambda call: str(call.cell.topology)),
    in_csv("figure", lambda call: call.name),
    Column("size", "size", read=lambda call: call.size, show=lambda size: f"{size:,}", whole=True),
    Column("value", "measured", read=lambda call: call.value, show=reading),
    Column("unit", "unit", read=lambda call: call.unit),
    Column("theory", "theory", read=lambda call: call.theory, show=reading),
    Column("share_of_theory", "share of theory", read=lambda call: call.share, show=percent),
    Column("share_of_largest_product", "share of the largest product", "", lambda call: call.share_of_product, percent),
    in_csv("flops_per_byte", lambda call: call.intensity),
)


def table(scope: Scope) -> Table | None:
    """Return a line for each figure and size."""
    return Table.if_any(reached(scope.groups), COLUMNS, notes=NOTES)


def device(scope: Scope) -> Table | None:
    """Return one line for each test, over all benchmarks."""
    calls = best(reached(scope.everything)) if is_first(scope) else []
    name = Column(heading="device", read=lambda call: call.device)
    shown = [name, *(column for column in COLUMNS if PAGE in column.forms)]
    return Table.if_any(calls, shown, forms=(PAGE,))


def is_first(scope: Scope) -> bool:
    """True for the first benchmark that trains nothing. The facts about a device stand only there."""
    return scope.benchmark == next((group.benchmark for group in scope.everything if not group.trains), None)


def curves(scope: Scope) -> Iterator[Drawing]:
    """Yield a plot over the sizes for each unit that has several sizes."""
    every = reached(scope.groups)
    for unit in dict.fromkeys(call.unit for call in every):
        same = [call for call in every if call.unit == unit]
        if len({call.size for call in same}) > 1:
            heading, name = f"{scope.benchmark}: {unit} over size", f"reached_{unit.replace('/', '_per_')}"
            yield Drawing(name, heading, partial(draw, same, heading))


def draw(every: Sequence[Reached], heading: str, theme: draws.Theme) -> Plot:
    """Draw a line for each test, precision, framework and topology. Both axes are logarithmic."""
    plot, axes = draws.blank(theme, heading, every[0].unit)
    axes.set_xlabel("size", color=theme.muted, fontsize=9)
    _logarithmic(axes, theme)
    axes.set_xscale("log", base=2)
    ticks = sorted({call.size for call in every})
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    lines: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for call in every:
        words = call.name.replace("_", " "), call.cell.group.precision, call.cell.shown, str(call.cell.topology)
        lines.setdefault(words, []).append((call.size, call.value))
    parts = [list(dict.fromkeys(part)) for part in zip(*lines, strict=True)]
    labels = []
    for key, points in lines.items():
        colour, marker = theme.colour(PRECISIONS.index(key[1])), theme.marker(parts[0].index(key[0]))
        sizes, values = zip(*sorted(points), strict=True)
        look = {"ms": 6, "lw": 1.6, "mec": theme.surface, "ls": draws.dashes(marker)}
        axes.plot(sizes, values, marker=marker, color=colour, **look)
        name = ", ".join(word for word, all_of in zip(key, parts, strict=True) if len(all_of) > 1)
        labels.append((sizes[-1], values[-1], name or key[1], reading(values[-1]), colour, marker))
    return draws.finish(plot, axes, labels, theme, "more is better")


def rooflines(scope: Scope) -> Iterator[Drawing]:
    """Yield a roofline for each device whose memory was measured, with the first benchmark that trains nothing."""
    every = reached(scope.everything) if is_first(scope) else []
    for number, name in enumerate(dict.fromkeys(call.device for call in every)):
        here = [call for call in every if call.device == name]
        if any(call.intensity for call in here) and any(call.peak == "memory" for call in here):
            yield Drawing(f"roofline_{number}", "Roofline", partial(roofline, here, name), in_files=False)


def roofline(every: Sequence[Reached], heading: str, theme: draws.Theme) -> Plot:
    """Draw points over FLOPs per byte, below the fastest memory and the largest product of each precision."""
    plot, axes = draws.blank(theme, f"{heading}: roofline", "TFLOPS")
    axes.set_xlabel("FLOPs per byte", color=theme.muted, fontsize=9)
    _logarithmic(axes, theme)
    points = [(call.intensity, call) for call in every if call.intensity]
    left, right = min(at for at, _ in points) / 2, max(at for at, _ in points) * 2
    memory = max(call.value for call in best(every) if call.peak == "memory")
    models, labels = list(dict.fromkeys(call.model for _, call in points)), []
    for at, call in points:
        colour = theme.colour(PRECISIONS.index(call.cell.group.precision))
        axes.plot([at], [call.value], theme.marker(models.index(call.model)), color=colour, ms=5, mec=theme.surface)
    for precision in dict.fromkeys(call.cell.group.precision for _, call in points):
        calls = [call for call in every if call.peak == "flops" and call.cell.group.precision == precision]
        if calls:
            ceiling = max(max(call.value, call.product or 0.0) for call in calls)
            ridge, colour = 1000 * ceiling / memory, theme.colour(PRECISIONS.index(precision))
            right = max(right, 2 * ridge)
            axes.plot([left, ridge, right], [memory * left / 1000, ceiling, ceiling], color=colour, lw=1.2)
            labels.append((right, ceiling, f"{precision}, product", f"{reading(ceiling)} TFLOPS", colour, None))
    axes.set_xlim(left, right)
    return draws.finish(plot, axes, labels, theme, f"slope: {reading(memory)} GB/s, the fastest memory measured")


def _logarithmic(axes: Axes, theme: draws.Theme) -> None:
    """Make both axes logarithmic, with plain numbers."""
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.tick_params(which="both", colors=theme.muted, labelsize=8.5, length=0)


SIZES = Topic("reached", "What single calls reach", order=80, table=table, drawings=curves)
DEVICE = Topic(
    "device",
    "The device in one table",
    "For each test, over all benchmarks of this report: the largest size, or the fastest batch.",
    order=90,
    table=device,
    drawings=rooflines,
)


ALIKE = 2.0
"""Two batch sizes are close if their ratio is at most this."""


@dataclass(frozen=True)
class Part:
    """TFLOPS of a device in the step of one cell, and the most similar layer that ran alone."""

    cell: Cell
    tflops: float
    layer: Reached

    @property
    def share(self) -> float:
        return self.tflops / self.layer.value


def parts(groups: Iterable[Group], everything: Iterable[Group]) -> list[Part]:
    """Return every measured cell of a model whose layer was measured alone on the same device.

    Without padding a step's samples are shorter than the layer's, so it is left out.
    """
    alone = [call for call in reached(everything) if call.name == "forward_backward"]
    found = []
    for cell in (cell for group in groups for cell in group.measured):
        work, batch, model = cell.record.work, cell.size.batch_per_replica, cell.group.summary.model
        layer = layers.LAYER_OF.get(workloads.models().get(model, ""), "")
        alike = [
            call
            for call in alone
            if _conditions(call.cell) == (layer, *_conditions(cell)[1:]) and 1 / ALIKE <= call.size / batch <= ALIKE
        ]
        if alike and work and work.flops_per_s and not cell.group.summary.options.remove_padding:
            nearest = min(alike, key=lambda c: (max(c.size / batch, batch / c.size), c.cell.topology.world))
            found.append(Part(cell, work.flops_per_s / 1e12, nearest))
    return found


def _conditions(cell: Cell) -> tuple[object, ...]:
    """Return the model, and what else has to be the same in the step and in the layer alone."""
    summary, device = cell.group.summary, cell.device.name if cell.device else cell
    return summary.model, device, summary.precision, summary.parameters.get("sequence_length"), summary.options.dropout


LAYER_COLUMNS = (
    *IDENTITY,
    Column(heading="TFLOPS a device", read=lambda part: reading(part.tflops)),
    Column(heading="layer alone", read=lambda part: reading(part.layer.value)),
    Column(heading="share", read=lambda part: percent(part.share)),
    Column(heading="layer's batch", read=lambda part: str(part.layer.size)),
    Column(heading="layer's attention", read=lambda part: str(part.layer.cell.group.summary.parameters["attention"])),
    Column(heading="measured in", read=lambda part: part.layer.cell.group.benchmark),
)
LAYER_NOTES = (
    "The layer alone is a forward and backward pass of one layer, with the same device, precision, sequence and "
    "dropout, and the nearest batch size that was measured, at most twice or half as large.",
    f"That layer is {layers.HIDDEN:,} wide, whatever the model's width. It keeps its weights in the run's precision, "
    "where a training casts them. A step also has embeddings, the vocabulary's head, the exchange and the update.",
)


def beside_layers(scope: Scope) -> Table | None:
    """Return a line for each cell whose layers were measured in this report."""
    return Table.if_any(parts(scope.groups, scope.everything), LAYER_COLUMNS, forms=(PAGE,), notes=LAYER_NOTES)


PARTS = Topic("parts", "A step and its layers alone", order=100, table=beside_layers)
