"""The JSON files under results/: what stands in them (schema 2), and reading them, whatever their schema.

A file here holds one kind of record. This room knows the configuration's types and the workloads' declarations, and
measures, computes and draws nothing: ranks write what these entries check, the report reads what they hold.
"""

from throughline.records.convergence import AgainstStated, ConvergenceVerdict, Curve, Look
from throughline.records.entry import SCHEMA, Data, Device, Entry, Figure
from throughline.records.largest import Largest, MaxBatch, Try
from throughline.records.proof import Comparison, Equivalence, Mathematics
from throughline.records.reading import (
    dump,
    leave_newer,
    read_curve,
    read_equivalence,
    read_max_batch,
    read_run,
    read_summary,
    read_verdict,
)
from throughline.records.run import DeviceTelemetry, Memory, NodeTelemetry, Rank, RunRecord, Series, Utilization, Work
from throughline.records.summary import Cell, Cost, Goal, LeftOut, Summary, Use

__all__ = [
    "SCHEMA", "AgainstStated", "Cell", "Comparison", "ConvergenceVerdict", "Cost", "Curve", "Data", "Device",
    "DeviceTelemetry", "Entry", "Equivalence", "Figure", "Goal", "Largest", "LeftOut", "Look", "Mathematics",
    "MaxBatch", "Memory", "NodeTelemetry", "Rank", "RunRecord", "Series", "Summary", "Try", "Use", "Utilization",
    "Work", "dump", "leave_newer", "read_curve", "read_equivalence", "read_max_batch", "read_run", "read_summary",
    "read_verdict",
]  # fmt: skip
