"""The JSON files under results/: what stands in them (schema 2), and reading them, whatever their schema.

A file here holds one kind of record. This room knows the configuration's types and the workloads' declarations, and
measures, computes and draws nothing: ranks write what these entries check, the report reads what they hold.
"""

from throughline.records.checks import ConvergenceVerdict, Curve, Equivalence, Largest, Look, Mathematics, MaxBatch
from throughline.records.entry import SCHEMA, Data, Device, Figure
from throughline.records.imported import Imported, ImportedRun
from throughline.records.reading import (
    leave_newer,
    read_curve,
    read_equivalence,
    read_imported,
    read_max_batch,
    read_run,
    read_summary,
    read_verdict,
    write,
)
from throughline.records.result import Result, ends, half_a_digit
from throughline.records.run import (
    DeviceTelemetry,
    Memory,
    Network,
    NodeTelemetry,
    Rank,
    RunRecord,
    Series,
    Utilization,
    Work,
)
from throughline.records.summary import Cell, Cost, Goal, LeftOut, Summary, Use

__all__ = [
    "SCHEMA", "Cell", "ConvergenceVerdict", "Cost", "Curve", "Data", "Device", "DeviceTelemetry", "Equivalence",
    "Figure", "Goal", "Imported", "ImportedRun", "Largest", "LeftOut", "Look", "Mathematics", "MaxBatch", "Memory",
    "Network", "NodeTelemetry", "Rank", "Result", "RunRecord", "Series", "Summary", "Use", "Utilization", "Work",
    "ends", "half_a_digit", "leave_newer", "read_curve", "read_equivalence", "read_imported", "read_max_batch",
    "read_run", "read_summary", "read_verdict", "write",
]  # fmt: skip
