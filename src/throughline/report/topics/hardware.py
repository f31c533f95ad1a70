"""Tables of memory, utilization, FLOPs with MFU, and FLOPs as other projects count them, with a line for each cell."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from throughline.comparables import flop_conventions
from throughline.comparables.flop_conventions import CONVENTIONS, SYMBOLS
from throughline.numbers import MIB, percent, reading, scaled
from throughline.records import Series, Work
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import CSV, FORMS, Column, Entry, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.throughput import speed

SHARE_AT_MOST = 1.05
"""A share of the matrix product above this is none: the product was slow, or kernels need fewer multiplications."""
NAMES = {
    "flops": "FLOPs",
    "head_positions": "vocabulary head",
    "computed_matmul_share": "share of matmul, computed",
    "tokens": "positions",
    "real_tokens": "real tokens",
}
"""Conventions that have another name on the page."""


def figure(
    path: str, heading: str = "", small: str = "", *, key: str = "", otherwise: str = "", optional: bool = False
) -> Column:
    """Return the column of a field of a cell's record, such as `use.machine.cpu_share`. Without heading, only for CSV.

    Its text has the unit that the field's name says. A series shows its mean, and its extremes as the title. An unknown
    figure has the reason that the record states, or `otherwise`.
    """
    first, *rest = path.split(".")
    otherwise = otherwise or ("not sampled" if first == "use" else "not recorded")
    names = (".".join(rest), ".0.".join(rest), *reversed(rest), "telemetry")
    key = key or "_".join(rest or [first]) + ("_mean" if first == "use" else "")
    text = partial(_text, (rest or [first])[-1])

    def read(cell: Cell) -> Entry:
        part: Any = _work(cell) if first == "work" else getattr(cell.record, first)
        value = part
        for name in rest:
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name)
        if isinstance(value, Series):
            return Entry(text(value.mean), value.mean, f"{text(value.min)} to {text(value.max)}")
        if isinstance(value, list):
            return Entry(", ".join(value) or "nothing", ", ".join(value))
        reasons = getattr(part, "reasons", {})
        stated = next((reasons[name] for name in names if name in reasons), None)
        return Entry.of(value, text, stated or _no_gpu(cell, rest) or otherwise)

    return Column(key, heading, small, read, forms=FORMS if heading else (CSV,), optional=optional)


def _no_gpu(cell: Cell, path: list[str]) -> str | None:
    """Return why a figure of GPUs is not known; None for another figure."""
    if path[:1] not in (["devices"], ["gpu"], ["throttle_reasons"]):
        return None
    use = cell.record.use
    assert use  # as every measured cell has it
    if path[0] == "devices" and (use.devices or use.reasons):
        return "the driver does not say"
    return use.reasons.get("devices") or "the run used no GPU"


def _text(name: str, value: float) -> str:
    """Return a figure as text, in the unit that its name says, but without the unit."""
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e6:,.1f}"
    if name.endswith("_bytes"):
        return f"{value / MIB:,.0f}"
    if name.endswith(("_share", "_active", "mfu", "mfu_causal")):
        return percent(value, 2 if name == "cost_cpu_share" else 1)
    if name in ("gpu", "cpu"):
        return percent(value)
    if "flops" in name:
        return scaled(value)
    if name == "real_tokens_per_s":
        return reading(value)
    return f"{value:.2f}" if name.endswith("_cores") else f"{value:,.0f}"


def _work(cell: Cell) -> Work:
    """Return a cell's work, without its shares of a matrix product that is slower than the training itself.

    A framework that computes nothing beyond the model has one share.
    """
    work = cell.record.work
    assert work  # as every measured cell has it
    share = work.matmul_share if work.computed_matmul_share is None else work.computed_matmul_share
    if share is None or share <= SHARE_AT_MOST:
        return work.model_copy(update={"computed_matmul_share": share})
    reason = "training does more FLOP/s than the matrix product of the same runs (see Implausible figures)"
    reasons = {**work.reasons, "matmul_share": reason, "computed_matmul_share": reason}
    return work.model_copy(update={"matmul_share": None, "computed_matmul_share": None, "reasons": reasons})


def _used_share(cell: Cell) -> Entry:
    held = cell.record.memory
    assert held  # as every measured cell has it
    used, total = held.device_used_bytes, held.device_total_bytes
    reason = held.reasons.get("device_used_bytes") or held.reasons.get("device_total_bytes")
    return Entry.of(used / total if used and total else None, percent, reason)


MEMORY_COLUMNS = (
    figure("peak_memory_bytes", "rank's peak", "MiB", otherwise="the framework does not tell"),
    figure("memory.needed_bytes", "needed", "MiB, framework"),
    figure("memory.reserved_bytes"),
    figure("memory.device_used_bytes", "used", "MiB, device"),
    figure("memory.device_total_bytes"),
    Column("device_used_share", "used", "share of total", _used_share),
    figure("memory.predicted_bytes", "predicted", "MiB, of a rank", optional=True),
)
WORK_COLUMNS = (
    figure("work.flops_per_sample", "FLOPs", "per sample"),
    figure("work.flops_per_s", "FLOP/s", "per device", key="flops_per_s_per_device"),
    figure("work.datasheet_flops_per_s", "peak", "datasheet"),
    figure("work.mfu", "MFU", "share of peak"),
    figure("work.mfu_causal", "MFU", "causal attention", optional=True),
    figure("work.matmul_flops_per_s", "matmul", "measured"),
    figure("work.matmul_share", "share of matmul"),
    figure("work.computed_matmul_share", "share of matmul", "computed"),
    figure("work.real_tokens_per_s", "real tokens/s", "all devices"),
    figure("work.real_token_share", "real tokens", "of positions"),
)
UNREAD = "the run has not timed its reading: synthetic batches, or a program of somebody else"
USE_COLUMNS = (
    figure("utilization.gpu", "GPUs busy", key="gpu_busy_share"),
    figure("utilization.cpu", "threads busy", "of workers", key="worker_threads_busy_share"),
    figure("loader_stall_share", "waiting", "for data", key="waiting_for_data_share", otherwise=UNREAD),
    figure("use.devices.sm_active", "SM active"),
    figure("use.devices.tensor_active", "tensor units active"),
    figure("use.devices.dram_active", "DRAM active"),
    figure("use.devices.nvlink_bytes_per_s", "NVLink", "MB/s"),
    figure("use.devices.sm_clock_mhz", "SM clock", "MHz"),
    figure("use.devices.memory_clock_mhz"),
    figure("use.devices.power_w", "power", "W"),
    figure("use.devices.temperature_c", "temperature", "°C"),
    figure("use.devices.memory_used_bytes"),
    figure("use.processes.cpu_cores", "CPU", "of the run, cores"),
    figure("use.processes.memory_bytes", "memory", "of the run, MiB"),
    figure("use.processes.threads"),
    figure("use.processes.disk_read_bytes_per_s"),
    figure("use.processes.disk_written_bytes_per_s"),
    figure("use.machine.cpu_share", "CPU", "of the machine"),
    figure("use.machine.cpu_others_share", "CPU", "of others"),
    figure("use.machine.cpu_steal_share", "CPU", "stolen by the host"),
    figure("use.machine.memory_used_bytes"),
    figure("use.machine.disk_read_bytes_per_s", "disk read", "MB/s"),
    figure("use.machine.disk_written_bytes_per_s", "disk written", "MB/s"),
    figure("use.machine.network_received_bytes_per_s", "network in", "MB/s"),
    figure("use.machine.network_sent_bytes_per_s", "network out", "MB/s"),
    figure("use.machine.infiniband_received_bytes_per_s"),
    figure("use.machine.infiniband_sent_bytes_per_s"),
    figure("use.machine.loopback_bytes_per_s", "loopback", "MB/s"),
    figure("use.machine.memory_used_share", "memory", "of the machine"),
    figure("use.machine.disk_busy_share", "disk busy", "busiest one"),
    figure("use.machine.network_busy_share", "network busy", "busiest link"),
    figure("use.throttle_reasons", "throttled by", key="throttle_reasons"),
    figure("use.cost_cpu_share", "telemetry", "CPU cost", key="telemetry_cpu_share"),
)


def memory(scope: Scope) -> Table:
    """Return peak memory: needed and reserved by the framework, and used as the device sees it."""
    on_cpus = any(cell.device and cell.device.kind == "cpu" for cell in scope.measured)
    note = "on a CPU the device is the whole machine: what all of its processes use, and what it has"
    return Table.of_groups(scope.groups, MEMORY_COLUMNS, notes=[note] if on_cpus else [])


def work(scope: Scope) -> Table:
    """Return FLOPs, shares of the peaks and real tokens. Every convention is explained below the table."""
    every = [cell.record.work for cell in scope.cells if cell.record.work]
    conventions: dict[str, dict[str, None]] = {}
    for cell in scope.cells:
        for name, text in cell.record.work.convention.items() if cell.record.work else ():
            conventions.setdefault(name, {})[text.replace(f"at {cell.group.precision}", "at its precision")] = None
    facts = [(NAMES.get(name, name), "; or ".join(texts)) for name, texts in conventions.items()]
    beyond = any(one.computed_matmul_share is not None for one in every)
    columns = [column for column in WORK_COLUMNS if beyond or column.key != "computed_matmul_share"]
    return Table.of_groups(scope.groups, columns, facts=facts)


def use(scope: Scope) -> Table:
    """Return means over the window for devices, processes and the machine, with the extremes as titles."""
    note = (
        "means over the timed window, the nodes, the devices and the repeats; in report.html, the tooltip of a figure "
        "has its lowest and its highest value"
    )
    return Table.of_groups(scope.groups, USE_COLUMNS, notes=[note])


def as_others_count(scope: Scope) -> Table | None:
    """Return tokens/s, FLOP/s and MFU of decoders by the conventions of others; None if the model is no decoder."""
    summary = scope.groups[0].summary if scope.groups else None
    decoder_and_tokens = flop_conventions.parts(summary.model, summary.parameters) if summary else None
    if decoder_and_tokens is None:
        return None
    flops = {each: each.count(*decoder_and_tokens) for each in CONVENTIONS}
    columns = [
        Column("tokens_per_s_per_device", "tokens/s", "per device", partial(speed, "tokens/s", True), reading),
        *(Column(f"tflops_{c.key}", "TFLOPS", c.name, partial(_tflops, flops[c]), reading) for c in CONVENTIONS),
        *(Column(f"mfu_{c.key}", "MFU", c.name, partial(_mfu, flops[c])) for c in CONVENTIONS),
    ]
    facts = [(each.name, f"{each.formula} FLOPs per token") for each in CONVENTIONS]
    return Table.of_groups(scope.groups, columns, facts=facts, notes=[SYMBOLS])


def _tflops(flops: float, cell: Cell) -> float:
    return flops * cell.median / cell.topology.world / 1e12


def _mfu(flops: float, cell: Cell) -> Entry:
    work = cell.record.work
    peak, reason = (work.datasheet_flops_per_s, work.reasons.get("mfu")) if work else (None, None)
    share = flops * cell.median / cell.topology.world / peak if peak else None
    return Entry.of(share, partial(percent, places=1), reason)


MEMORY = Topic("memory", "Memory", order=110, table=memory)
USE = Topic("utilization", "Utilization", order=120, table=use)
WORK = Topic("flops", "FLOPs and MFU", order=130, table=work)
OTHERS = Topic(
    "conventions",
    "FLOP/s as others count them",
    "These columns count the FLOPs of the same speed by several conventions. Compare a figure from elsewhere with the "
    "column of its own convention.",
    order=150,
    table=as_others_count,
)
