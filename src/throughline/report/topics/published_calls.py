"""A device beside published ones: Mu Li's table of GPUs, with a column for each device of this report.

Its figures are TFLOPS of matrix products, vectors and layers of Transformers. Ours are the figures of the same calls. A
second table has our collective operations beside imported results of nccl-tests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from throughline import gpus
from throughline.comparables import published
from throughline.grouping import grouped
from throughline.numbers import reading
from throughline.records import Result
from throughline.report.analysis.cells import Group
from throughline.report.render.tables import PAGE, Column, Entry, Line, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.single_calls import Reached, best, is_first, reached

SOURCE = "mli/transformers-benchmarks"
LIKE = {"fp32": ("tf32", "fp32"), "fp16": ("fp16", "bf16")}
"""Our precisions that stand in a published row, the first that was measured. Since Ampere its fp32 is TF32."""
FIGURES = {"forward only, half()": "forward", "forward+backward, half()": "forward_backward"}
"""Map the options of published layers to our figures. Every other figure has the name of its model."""

Call = tuple[str, str, str]
"""The model, the figure and the published precision of a row."""


@dataclass(frozen=True)
class Device:
    """One column. name: as the source or the driver reports it. calls: its figures, with a precision that differs."""

    name: str
    heading: str
    small: str
    calls: Mapping[Call, tuple[float, str]]
    per_hour: str | None

    @property
    def gpu(self) -> gpus.Gpu | None:
        return gpus.find(self.name)


def _call(row: Result) -> Call:
    return row.model, FIGURES.get(row.options, row.model), row.precision or ""


def theirs(rows: Iterable[Result]) -> Iterator[Device]:
    """Yield the published devices, in the order of their source."""
    rows = [row for row in rows if row.value and row.device]
    for name in dict.fromkeys(row.device or "" for row in rows):
        calls = {_call(row): (float(row.value or 0), "") for row in rows if row.device == name}
        gpu = gpus.find(name)
        price = f"{gpu.price_per_hour:g} {gpu.currency}" if gpu and gpu.price_per_hour else None
        yield Device(name, gpu.kind if gpu else name, "published", calls, price)


def ours(groups: Iterable[Group], wanted: Iterable[Call]) -> Iterator[Device]:
    """Yield our devices with each wanted figure that one of their runs has."""
    for name, calls in grouped(best(reached(groups)), lambda call: call.device).items():
        values = {(call.model, call.name, call.cell.group.precision): call.value for call in calls}
        figures = {}
        for model, figure, precision in wanted:
            there = [own for own in LIKE[precision] if (model, figure, own) in values]
            if there:
                mark = "" if there[0] == precision else there[0]
                figures[model, figure, precision] = values[model, figure, there[0]], mark
        cost = calls[0].cell.record.cost
        price = f"{cost.price_per_device_hour:g} {cost.currency}" if cost.price_per_device_hour else None
        if figures:
            yield Device(name, name, "measured here", figures, price)


def _peak(gpu: gpus.Gpu | None) -> Entry:
    """Return the datasheet's peak in TF32, without it in fp32, and in fp16."""
    if gpu is None:
        return Entry(reason="not in resources/gpus.csv")
    peaks = gpu.peak_flops_per_s["tf32"] or gpu.peak_flops_per_s["fp32"], gpu.peak_flops_per_s["fp16"]
    return Entry.words(" / ".join("n/a" if peak is None else f"{peak / 1e12:g}" for peak in peaks))


def _memory(gpu: gpus.Gpu | None) -> Entry:
    if gpu is None:
        return Entry(reason="not in resources/gpus.csv")
    speed = "n/a" if gpu.memory_bytes_per_s is None else f"{gpu.memory_bytes_per_s / 1e9:g}"
    return Entry.words(f"{gpu.memory_bytes / 2**30:g} / {speed}")


def _figure(device: Device, call: Call) -> Entry:
    value, precision = device.calls.get(call, (None, ""))
    return Entry.of(
        value, lambda value: f"{reading(value)} ({precision})" if precision else f"{value:.4g}", "not measured"
    )


def _lines(devices: Sequence[Device], calls: Iterable[Call]) -> Iterator[list[Entry]]:
    facts = {
        "theory, TF32 (else fp32) / fp16, TFLOPS": lambda device: _peak(device.gpu),
        "memory, GB / bandwidth, GB/s": lambda device: _memory(device.gpu),
        "price to buy, USD": lambda device: Entry.of(
            device.gpu and device.gpu.purchase_usd, "{:,.0f}".format, "not known"
        ),
        "price of an hour": lambda device: Entry.of(device.per_hour, str, "not known"),
    }
    for name, read in facts.items():
        yield [Entry.words(name), *map(read, devices)]
    for call in calls:
        model, figure, precision = call
        name = model if figure == model else f"{model}, {figure.replace('_', ' ')}"
        yield [Entry.words(f"{name}, {precision}, TFLOPS"), *(_figure(device, call) for device in devices)]


def table(scope: Scope) -> Table | None:
    """Return the published table with a column for each of our devices; None if we measured none of its calls."""
    if not is_first(scope):
        return None
    rows = [row for row in published.rows() if row.source == SOURCE]
    calls = list(dict.fromkeys(map(_call, rows)))
    own = list(ours(scope.everything, calls))
    devices = [*theirs(rows), *own]
    columns = [Column(heading="call"), *(Column(heading=device.heading, small=device.small) for device in devices)]
    lines = [Line(entries) for entries in _lines(devices, calls)]
    return Table(columns, lines, forms=(PAGE,)) if own else None


INTRO = (
    f"Published figures: {SOURCE} (2022), where fp32 products are TF32 on A100, A6000 and later. Ours are those of the "
    "largest size, or of the fastest batch. Peaks, memory and prices are those of resources/gpus.csv; the price of an "
    "hour of ours is that of the configuration, if it has one."
)
TOPIC = Topic("published_calls", "The device beside published ones", INTRO, order=95, table=table)


def pairs(scope: Scope) -> Iterator[tuple[Reached, Result]]:
    """Yield our bus bandwidth at the largest size with each one that nccl-tests has for the operation and devices."""
    calls = (call for call in reached(scope.groups) if call.name == "bus_bandwidth")
    for same_cell in grouped(calls, lambda call: call.cell).values():
        call = max(same_cell, key=lambda call: call.size)
        for row in scope.imported:
            same = row.model.replace("_", "-").replace("alltoall", "all-to-all") == call.model
            if row.unit == "GB/s" and same and row.devices in (call.cell.topology.world, None):
                yield call, row


COLUMNS = (
    Column(heading="operation", read=lambda pair: pair[0].model),
    Column(heading="topology", read=lambda pair: str(pair[0].cell.topology)),
    Column(heading="precision", read=lambda pair: pair[0].cell.group.precision),
    Column(heading="size, bytes", read=lambda pair: pair[0].size, show=lambda size: f"{size:,}"),
    Column(heading="ours, GB/s", read=lambda pair: pair[0].value, show=reading),
    Column(heading="theirs, GB/s", read=lambda pair: float(pair[1].value or 0), show=reading),
    Column(heading="ours over theirs", read=lambda pair: pair[0].value / float(pair[1].value or 1), show=reading),
    Column(heading="their device", read=lambda pair: pair[1].device or "not stated"),
    Column(heading="theirs", read=lambda pair: pair[1].place),
)


def bandwidths(scope: Scope) -> Table | None:
    """Return a line for each of our operations that an imported result of nccl-tests measures, too."""
    return Table.if_any(pairs(scope), COLUMNS, forms=(PAGE,))


BANDWIDTHS = (
    "Bus bandwidths at the largest size of each run, out of place, as nccl-tests define them. Their largest size may "
    "be another, and their precision is not compared."
)
NCCL_TESTS = Topic("nccl_tests", "Beside nccl-tests", BANDWIDTHS, order=192, table=bandwidths)
