"""Derive the figures of a run's telemetry again, from the samples in run<k>.telemetry.csv.

The table comes from a stranger. We refuse one that is too large, and read numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from throughline.archive.differences import Difference, between, equal
from throughline.messages import Window
from throughline.observe.telemetry_window import GAUGES, Figures, figures, parts, rates_of
from throughline.records import NodeTelemetry, RunRecord
from throughline.records.run import Series

MOST_BYTES, MOST_NODES = 256 << 20, 4
"""The most that a table of samples may hold of a node: two days of eight GPUs, once a second. More nodes share it."""
SEVEN_DIGITS = 5e-7
"""The rounding of a number in run<k>.telemetry.csv."""
OF_INTERVALS = 1e-4
"""The same for the mean of rates, whose weights are differences of rounded times."""
KEYS = ("node", "at_s", "in_window")


def telemetry(file: str, run: RunRecord, table: Path) -> Iterator[Difference]:
    """Yield figures whose mean, minimum or maximum is not that of the samples within the window."""
    known = [node for node in run.telemetry if "telemetry" not in node.reasons]  # else the reason says why
    if not known:
        return
    most = MOST_BYTES * min(MOST_NODES, len(known))
    if table.stat().st_size > most:
        yield Difference(table_name(file), "", f"it holds more than {most >> 20} MiB, and is not read")
        return
    try:
        samples = _read(table, known)
    except ValueError as error:
        yield Difference(table_name(file), "", f"it cannot be read: {error}")
        return
    for node in known:
        ends = [rank.window_end_s for rank in run.ranks if rank.node == node.node]
        rows = samples[samples["node"] == node.node]
        yield from _node(file, node, rows, Window(0.0, max(ends, default=0.0)))


def _read(table: Path, nodes: list[NodeTelemetry]) -> pd.DataFrame:
    """Return the numbers of a table: its keys, gauges and rates. ValueError if it is no table of samples."""
    most = max(len(node.devices) for node in nodes)
    wanted = {part.prefix + name for part in parts(most) for name in (*GAUGES[part.kind], *rates_of(part.kind))}
    read = pd.read_csv(table, usecols=lambda name: name in wanted or name in KEYS, dtype=float, index_col=False)
    if lacking := [name for name in KEYS if name not in read.columns]:
        raise ValueError(f"it has no column {lacking[0]}")
    if np.isinf(read.to_numpy()).any():
        raise ValueError("it has a number that is not finite")
    read = read[read["node"].isin([node.node for node in nodes])]
    if read[list(KEYS)].isna().to_numpy().any():
        raise ValueError(f"a row lacks one of {', '.join(KEYS)}")
    return read


def _node(file: str, node: NodeTelemetry, samples: pd.DataFrame, window: Window) -> Iterator[Difference]:
    within = int(samples["in_window"].sum())
    if node.samples != within:
        text = f"it states {node.samples} samples within the window, and {table_name(file)} has {within}"
        yield Difference(file, f"telemetry[{node.node}].samples", text)
        return
    table = {str(name): column.to_numpy() for name, column in samples.items()}
    stated: list[Mapping[str, Series | None]] = [node.machine, node.processes, *map(vars, node.devices)]
    for part, series in zip(parts(len(node.devices)), stated, strict=True):
        for name, derived in figures(table, part, window).items():
            where = f"telemetry[{node.node}].{part.prefix.rstrip('_')}.{name}"
            values = table.get(part.prefix + name)
            if series.get(name) and (values is None or np.isnan(values).all()):
                yield Difference(file, where, "the archive lacks the samples behind it")
            tolerance = SEVEN_DIGITS if name in GAUGES[part.kind] else OF_INTERVALS
            yield from _series(file, series.get(name), derived, where, tolerance)


def _series(
    file: str, series: Series | None, derived: Figures | None, where: str, tolerance: float
) -> Iterator[Difference]:
    for end, value in (derived or {}).items() if series else ():
        stated = getattr(series, end)
        if abs(stated - value) > tolerance * abs(value) + 1e-9 and not equal(stated, value):
            yield from between(file, stated, value, f"{where}.{end}")


def table_name(file: str) -> str:
    """Return the name of the table with the samples of a record's run."""
    return file.removesuffix(".json") + ".telemetry.csv"
