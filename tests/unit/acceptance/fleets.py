"""Synthetic records of an acceptance: a fleet of equal nodes of which a test makes a part slow."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from report_fixture import NO_MEMORY, NO_WORK
from throughline.acceptance import verdict
from throughline.acceptance.measured import ALONE
from throughline.files import write_json
from throughline.records import SCHEMA
from throughline.records.acceptance import Acceptance
from throughline.spec import RunSpec
from throughline.study import acceptance
from throughline.study.acceptance import Fleet, Measurement, Place, Plan
from throughline.study.config import load

SPEEDS = {
    "step": 1000.0, "matmul": 700.0, "memory": 2900.0, "copies": 50.0, "all-reduce": 300.0, "disk": 2.0, "parts": 1.0,
}  # fmt: skip
"""Samples per second, TFLOPS and GB/s."""
Share = Callable[[Measurement], float]
Change = Callable[[Measurement, dict[str, Any]], None]


def asked(nodes: int = 4, devices: int = 2, kind: str = "cuda", **accept: Any) -> Plan:
    config = load(["config.yaml"])
    section = config.accept.model_copy(update=accept)
    fleet = Fleet(tuple(range(nodes)), devices, kind, threads=2)
    return acceptance.asked(config.model_copy(update={"accept": section}), fleet)


def write(made: Plan, folder: Path, speed: Share = lambda _: 1.0, change: Change = lambda _, record: None) -> None:
    """Write a record for each measurement, and the node jobs. speed: its share of the usual speed; change: of a
    record."""
    chance = random.Random(1)
    for measured in made.measurements():
        value = SPEEDS[measured.what] * speed(measured) * (1 + chance.gauss(0, 0.002))
        content = record(measured, value)
        if measured.what == "parts":
            content["figures"], content["ranks"] = parts(measured.spec, speed, measured)
        change(measured, content)
        path = folder / measured.record
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)
    for visit, several in made.visits.items():
        write_json(folder / visit, {"schema": SCHEMA, "records": [measured.record for measured in several]})


def judged(folder: Path, made: Plan | None = None, **world: Any) -> Acceptance:
    """Write the records of a fleet, and judge them. world: `speed` and `change` of `write`."""
    made = made or asked()
    write(made, folder, **world)
    return verdict.judge(made, folder)


def slow(node: int, device: int | None, *whats: str, by: float = 0.93) -> Share:
    """Make measurements slow: of one device, or of everything that a node takes part in if the device is None."""

    def share(measured: Measurement) -> float:
        place = measured.place
        mine = node in place.nodes and (device is None or place.device == device)
        return by if mine and measured.what in whats else 1.0

    return share


def slow_pairs(*slow: tuple[int, ...], by: float = 0.5) -> Share:
    """Make these pairs slow. by: their share of the usual speed."""
    return lambda measured: by if measured.place.nodes in slow else 1.0


def slow_network(node: int, by: float = 0.5) -> Share:
    """Make everything slow that a node does with others."""
    return lambda measured: by if measured.place.kind in ("pair", "all") and node in measured.place.nodes else 1.0


def all_of(*shares: Share) -> Share:
    """Multiply what several functions make slow."""
    return lambda measured: math.prod(share(measured) for share in shares)


def busy(node: int) -> Change:
    """Let other processes use the processor of a node while it trains."""

    def change(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.nodes == (node,) and measured.what == "step":
            record["telemetry"][0]["machine"]["cpu_others_share"] = dict.fromkeys(("mean", "min", "max"), 0.6)

    return change


def record(measured: Measurement, value: float) -> dict[str, Any]:
    """Return a valid record whose figures are `value`."""
    spec, steps = measured.spec, 150 if measured.what == "step" else 10
    per_s = value if measured.what == "step" else 100.0
    window = spec.size.global_batch * steps / per_s
    return {
        "schema": SCHEMA, "spec": spec.changed(), "reason": None, "warnings": [], "data": None,
        "device": {"kind": "cpu" if spec.device == "cpu" else "cuda", "name": "NVIDIA H100 80GB HBM3",
                   "count": spec.topology.devices, "fp16_native": True},
        "environment": {"framework": {"torch": "2.13.0"}, "code": "0123456789ab", "digest": "0123456789ab"},
        "settings": None, "network": None, "memory": NO_MEMORY, "work": NO_WORK | {"convention": {}},
        "started": "2026-11-20T12:00:00Z", "ended": "2026-11-20T12:01:30Z",
        "status": "ok", "unit": "samples/s" if measured.what == "step" else "calls/s", "samples_per_s": per_s,
        "figures": _figures(measured, value), "window_s": window, "steps_asked": steps, "steps_timed": steps,
        "warmup_steps": 2, "step_seconds": [window / steps] * steps, "loss": None, "scaler_skipped_steps": 0,
        "ranks": [], "peak_memory_bytes": None, "loader_stall_share": None,
        "utilization": {"cpu": None, "gpu": None},
        "telemetry": [
            telemetry(node, spec.topology.devices) if window >= 1 else _no_telemetry(node)
            for node in range(spec.topology.nodes)
        ],
    }  # fmt: skip


def parts(spec: RunSpec, share: Share, measured: Measurement) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the figures and the ranks of a record of a node's parts. share: of a device's usual speed."""
    chance, figures, ranks = random.Random(str(measured.place)), [], list[list[float]]()
    for device in range(spec.topology.devices):
        alone = [replace(measured, place=Place("device", measured.place.nodes, device), what=what) for what in ALONE]
        figures = []
        of_node = [replace(measured, what="all-reduce"), replace(measured, what="disk")]
        for one in [*alone, *of_node] * acceptance.ROUNDS:
            figures += _figures(one, SPEEDS[one.what] * share(one) * (1 + chance.gauss(0, 0.002)))
        ranks.append([figure["value"] for figure in figures])
    times = {"window_start_s": 0, "window_end_s": 1, "peak_memory_bytes": None, "cpu_seconds": 1, "loader_stall_s": 0}
    return figures, [{"rank": rank, "node": 0, **times, "figures": values} for rank, values in enumerate(ranks)]


def _figures(measured: Measurement, value: float) -> list[dict[str, Any]]:
    if measured.what == "all-reduce":
        return [
            {"name": name, "unit": "GB/s", "better": "more", "at": size, "value": value * size / (size + 2**20)}
            for size in (2**10, 2**20, 2**30)
            for name in ("algorithm_bandwidth", "bus_bandwidth")
        ]
    return [
        {"name": name, "unit": "TFLOPS" if name == "matmul" else "GB/s", "better": "more", "at": 8192, "value": value}
        for name in acceptance.RECORDED[measured.what]
    ]


def telemetry(node: int, devices: int) -> dict[str, Any]:
    """Return what was sampled of a node in a window of 20 s."""

    def steady(value: float) -> dict[str, float]:
        return {"mean": value, "min": value, "max": value}

    gpu = {"sm_clock_mhz": steady(1755.0), "temperature_c": steady(60.0), "throttle_reasons": []}
    return {
        "node": node, "interval_s": 1.0, "samples": 20, "cost_cpu_share": 0.001,
        "machine": {"cpu_others_share": steady(0.01)}, "processes": {},
        "devices": [{"index": index, **gpu} for index in range(devices)], "reasons": {},
    }  # fmt: skip


def _no_telemetry(node: int) -> dict[str, Any]:
    """Return the telemetry of a window that is shorter than the time between two samples."""
    return {
        "node": node, "interval_s": 1.0, "samples": 0, "cost_cpu_share": None,
        "machine": {"cpu_others_share": None}, "processes": {}, "devices": [],
        "reasons": {"telemetry": "the window is shorter than the sampling interval"},
    }  # fmt: skip
