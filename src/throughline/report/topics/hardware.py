"""Tables of memory, utilization, and FLOPs with MFU, with a row for each cell."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from throughline.numbers import MIB, mebibytes, percent, reading, scaled
from throughline.records import Cell, Series, Use, Work
from throughline.report.analysis import judged_pairs
from throughline.report.analysis.cells import Row
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.sides import Side
from throughline.report.render.head import Best, measured
from throughline.report.render.tables import (
    CSV,
    TEXT,
    Column,
    Entry,
    Line,
    Table,
    batch_heading,
    lines,
    read,
)
from throughline.report.topic import LOSS, Finding, Scope, Topic

MEMORY_COLUMNS = (
    Column("peak_memory_bytes", "rank's peak", "MiB"),
    Column("needed_bytes", "needed", "MiB, framework"),
    Column("reserved_bytes", "reserved", "MiB, framework"),
    Column("device_used_bytes", "used", "MiB, device"),
    Column("device_total_bytes", "total", "MiB, device"),
    Column("device_used_share", "used", "share of total"),
)
PREDICTED = Column("predicted_bytes", "predicted", "MiB, of a rank")
"""Only tables with a model whose memory can be predicted have this column."""
WORK_COLUMNS = (
    Column("flops_per_sample", "FLOPs", "per sample"),
    Column("flops_per_s_per_device", "FLOP/s", "per device"),
    Column("datasheet_flops_per_s", "peak", "datasheet"),
    Column("mfu", "MFU", "share of peak"),
    Column("matmul_flops_per_s", "matmul", "measured"),
    Column("matmul_share", "share of matmul"),
    Column("real_tokens_per_s", "real tokens/s", "all devices"),
    Column("real_token_share", "real tokens", "of positions"),
)
CAUSAL = Column("mfu_causal", "MFU", "causal attention")
"""Shown if a workload states it, after the MFU that counts attention in full."""
COMPUTED = Column("computed_matmul_share", "share of matmul", "computed")
"""Shown if a framework computes more than the model needs, after the share that the model's FLOPs take."""
SHARE_AT_MOST = 1.05
"""A share of the matrix product above this is none: the product was slow, or kernels need fewer multiplications."""
CONVENTIONS = {
    "flops": "FLOPs",
    "head_positions": "vocabulary head",
    "computed_matmul_share": "share of matmul, computed",
    "tokens": "positions",
    "real_tokens": "real tokens",
}
"""Conventions that have another name on the page."""
WAITS = 0.05  # a cell that waits for a larger share of its time gets a finding
USE_COLUMNS = (
    Column("gpu_busy_share", "GPUs busy"),
    Column("worker_threads_busy_share", "threads busy", "of workers"),
    Column("waiting_for_data_share", "waiting", "for data"),
    Column("devices_sm_active_mean", "SM active"),
    Column("devices_tensor_active_mean", "tensor units active"),
    Column("devices_dram_active_mean", "DRAM active"),
    Column("devices_nvlink_bytes_per_s_mean", "NVLink", "MB/s"),
    Column("devices_sm_clock_mhz_mean", "SM clock", "MHz"),
    Column("devices_memory_clock_mhz_mean", forms=(CSV,)),
    Column("devices_power_w_mean", "power", "W"),
    Column("devices_temperature_c_mean", "temperature", "°C"),
    Column("devices_memory_used_bytes_mean", forms=(CSV,)),
    Column("processes_cpu_cores_mean", "CPU", "of the run, cores"),
    Column("processes_memory_bytes_mean", "memory", "of the run, MiB"),
    Column("processes_threads_mean", forms=(CSV,)),
    Column("processes_disk_read_bytes_per_s_mean", forms=(CSV,)),
    Column("processes_disk_written_bytes_per_s_mean", forms=(CSV,)),
    Column("machine_cpu_share_mean", "CPU", "of the machine"),
    Column("machine_cpu_others_share_mean", "CPU", "of others"),
    Column("machine_cpu_steal_share_mean", "CPU", "stolen by the host"),
    Column("machine_memory_used_bytes_mean", forms=(CSV,)),
    Column("machine_disk_read_bytes_per_s_mean", "disk read", "MB/s"),
    Column("machine_disk_written_bytes_per_s_mean", "disk written", "MB/s"),
    Column("machine_network_received_bytes_per_s_mean", "network in", "MB/s"),
    Column("machine_network_sent_bytes_per_s_mean", "network out", "MB/s"),
    Column("machine_infiniband_received_bytes_per_s_mean", forms=(CSV,)),
    Column("machine_infiniband_sent_bytes_per_s_mean", forms=(CSV,)),
    Column("machine_loopback_bytes_per_s_mean", "loopback", "MB/s"),
    Column("machine_memory_used_share_mean", "memory", "of the machine"),
    Column("machine_disk_busy_share_mean", "disk busy", "busiest one"),
    Column("machine_network_busy_share_mean", "network busy", "busiest link"),
    Column("throttle_reasons", "throttled by"),
    Column("telemetry_cpu_share", "telemetry", "CPU cost"),
)
"""Between the first three columns and the last two are the series of `Use`; each key begins with the series' part."""


def memory(scope: Scope) -> Table:
    """Return peak memory: needed and reserved by the framework, and used as the device sees it.

    A cell that ran out of memory says so.
    """
    devices = [group.summary.device for group in scope.groups if group.summary]
    note = "on a CPU the device is the whole machine: what all of its processes use, and what it has"
    held = [row.cell.memory for group in scope.groups for row in group.rows if row.cell and row.cell.memory]
    predicted = (PREDICTED,) if any(memory.predicted_bytes for memory in held) else ()
    return Table(
        (*MEMORY_COLUMNS, *predicted),
        lines(scope.groups, partial(_memory, predicted)),
        notes=[note] if any(device and device.kind == "cpu" for device in devices) else [],
    )


def _memory(predicted: Sequence[Column], cell: Cell) -> list[Entry]:
    held = cell.memory
    assert held  # as every measured cell has it
    used, total = held.device_used_bytes, held.device_total_bytes
    reason = held.reasons.get("device_used_bytes") or held.reasons.get("device_total_bytes")
    return [
        Entry.of(cell.peak_memory_bytes, partial(_text, "peak_memory_bytes"), "the framework does not tell"),
        *read(held, [column.key for column in MEMORY_COLUMNS[1:-1]], _text),
        Entry.of(used / total if used and total else None, percent, reason),
        *read(held, [column.key for column in predicted], _text),
    ]


def memory_text(scope: Scope) -> Table:
    """Return peak memory per device in MiB, as used / total if the total is known, with a column for each topology."""
    groups = scope.groups
    topologies = sorted({row.topology for group in groups for row in group.rows}, key=lambda t: (t.world, t))
    header = [batch_heading(groups), "precision", "framework", *map(str, topologies)]
    peaks = []
    for group in groups:
        for framework in group.frameworks:
            rows = [group.row(framework, topology) for topology in topologies]
            shown = next(row.shown for row in rows if row)
            batch = group.batch_of(*(row for row in rows if row))
            texts = [batch, group.precision, shown, *(_peak(row) if row else "" for row in rows)]
            peaks.append(Line(list(map(Entry.words, texts))))
    columns = [Column(heading=heading) for heading in header]
    by_cell = memory(scope).in_form(TEXT)
    notes = by_cell.below if by_cell else ()
    return Table(columns, peaks, notes=notes, heading="Peak memory per device, MiB", spaced=True)


def _peak(row: Row) -> str:
    if row.cell is None or not row.cell.n_ok:
        return row.label
    total = row.cell.memory.device_total_bytes if row.cell.memory else None
    return mebibytes(row.cell.peak_memory_bytes) + (f" / {mebibytes(total)}" if total else "")


def work(scope: Scope) -> Table:
    """Return FLOPs, shares of the peaks and real tokens. Every convention is explained below the table."""
    conventions: dict[str, dict[str, None]] = {}
    every = [row.cell.work for group in scope.groups for row in group.rows if row.cell and row.cell.work]
    for work in every:
        for name, text in work.convention.items():
            conventions.setdefault(name, {})[text] = None
    facts = [(CONVENTIONS.get(name, name), "; or ".join(texts)) for name, texts in conventions.items()]
    causal = (CAUSAL,) if any(work.mfu_causal is not None for work in every) else ()
    computed = (COMPUTED,) if any(work.computed_matmul_share is not None for work in every) else ()
    columns = (*WORK_COLUMNS[:4], *causal, *WORK_COLUMNS[4:6], *computed, *WORK_COLUMNS[6:])
    names = [column.key.removesuffix("_per_device") for column in columns]
    return Table(columns, lines(scope.groups, lambda cell: read(_work(cell), names, _text)), facts)


def _work(cell: Cell) -> Work:
    """Return a cell's work, without its shares of a matrix product that is slower than the training itself.

    A framework that computes nothing beyond the model has one share.
    """
    work = cell.work
    assert work  # as every measured cell has it
    share = work.matmul_share if work.computed_matmul_share is None else work.computed_matmul_share
    if share is None or share <= SHARE_AT_MOST:
        return work.model_copy(update={"computed_matmul_share": share})
    reason = "training does more FLOP/s than the matrix product of the same runs (see Implausible figures)"
    reasons = {**work.reasons, "matmul_share": reason, "computed_matmul_share": reason}
    return work.model_copy(update={"matmul_share": None, "computed_matmul_share": None, "reasons": reasons})


def use(scope: Scope) -> Table:
    """Return means over the window for devices, processes and the machine, with the extremes as titles."""
    note = (
        "means over the timed window, the nodes, the devices and the repeats; on the page, the tooltip of a figure has "
        "its lowest and its highest value"
    )
    return Table(USE_COLUMNS, lines(scope.groups, _use), notes=[note])


def _use(cell: Cell) -> list[Entry]:
    use, shares = cell.use, cell.utilization
    assert use and shares  # as every measured cell has them
    no_gpu = use.reasons.get("devices") or "the run used no GPU"
    causes = None if use.throttle_reasons is None else ", ".join(use.throttle_reasons)
    return [
        Entry.of(shares.gpu, percent, no_gpu),
        Entry.of(shares.cpu, percent),
        Entry.of(cell.loader_stall_share, partial(percent, places=1), "nothing is read: synthetic batches"),
        *(_series(use, *column.key.removesuffix("_mean").split("_", 1)) for column in USE_COLUMNS[3:-2]),
        Entry.of(causes, lambda names: names or "nothing", no_gpu),
        Entry.of(use.cost_cpu_share, partial(percent, places=2), use.reasons.get("telemetry") or "not sampled"),
    ]


def _series(use: Use, part: str, name: str) -> Entry:
    """Return the mean of a series with its extremes as the title.

    Without the series, return the reason that is recorded for its name or for its part.
    """
    every: Mapping[str, Series | None] = getattr(use, part)
    reasons, series = use.reasons, every.get(name)
    if series is not None:
        mean, least, most = (_text(name, value) for value in (series.mean, series.min, series.max))
        return Entry(mean, series.mean, f"{least} to {most}")
    keys = (f"{part}.{name}", f"{part}.0.{name}", name, part, "telemetry")
    silent = "not sampled"
    if part == "devices":
        silent = "the driver does not say" if every or reasons else "the run used no GPU"
    return Entry(reason=next((reasons[key] for key in keys if key in reasons), silent))


def _text(name: str, value: float) -> str:
    """Return a figure as text, in the unit that its name says, but without the unit."""
    if name.endswith("_bytes_per_s"):
        return reading(value / 1e6) if value else "0"
    if name.endswith("_bytes"):
        return f"{value / MIB:,.0f}"
    if name.endswith(("_share", "_active", "mfu", "mfu_causal")):
        return percent(value, 1)
    if "flops" in name:
        return scaled(value)
    if name == "real_tokens_per_s":
        return reading(value)
    return f"{value:.2f}" if name.endswith("_cores") else f"{value:,.0f}"


def waiting(scope: Scope) -> Iterator[Finding]:
    """Yield a sentence for each cell that waits for its data."""
    for best in measured(scope.groups):
        waits, row = best.cell.loader_stall_share, best.row
        if waits is not None and waits > WAITS:
            waiting = f"{row.framework} {row.topology} waits {percent(waits)} of its time for data ({best.settings})"
            yield Finding(_waits(waiting, _synthetic(best, scope), best.group.unit), LOSS)


def _waits(waiting: str, pair: Pair | None, unit: str) -> str:
    """Say what a cell that waits for data loses, from its comparison with synthetic data."""
    if pair is None:
        return (
            f"{waiting}: the figure measures reading as well. Put the data on a faster disk, or compare with the extra "
            "`synthetic`."
        )
    times = f"with synthetic data it is {pair.ratio:.3f} times as fast"
    if pair.tested is None:
        return f"{waiting}; {times}, and {pair.reason}: what reading costs is not known."
    times += f" (tested: {pair.tested.ratio:.3f}, {pair.interval})"
    if pair.tested.within(pair.limit) or pair.verdict == "slower":
        return f"{waiting}, and is no slower than with synthetic data: {times}."
    if pair.verdict == "faster" and pair.tested.low > 1 + pair.margin:
        return (
            f"The loader feeds {reading(pair.base.median)} {unit}; with synthetic data this machine trains "
            f"{reading(pair.other.median)}. {waiting}: {times}, so its figure is that of reading, not of training."
        )
    return f"{waiting}; {times}: what reading costs cannot be distinguished from noise."


def _synthetic(best: Best, scope: Scope) -> Pair | None:
    """Return the comparison with the same cell of the extra `synthetic`, in the same environment; None without one."""
    for other in measured(group for group in scope.everything if group.benchmark == f"{scope.benchmark}__synthetic"):
        same = (other.group.name, other.row.framework, other.row.topology)
        if same == (best.group.name, best.row.framework, best.row.topology):
            sides = Side(best.group, best.row), Side(other.group, other.row)
            again = judged_pairs.twice_measured(scope.groups, scope.everything, ())
            pair = judged_pairs.of_sides(*sides, again)
            return None if pair is None or pair.unlike else pair
    return None


MEMORY = Topic("memory", "Memory", order=110, table=memory, text=lambda scope: [memory_text(scope)])
USE = Topic("utilization", "Utilization", order=120, table=use, findings=waiting)
WORK = Topic("flops", "FLOPs and MFU", order=130, table=work)
