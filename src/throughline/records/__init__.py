"""The JSON files under results/: their content (schema 3), and functions that read them.

This package may import the types of the configuration and the declarations of the workloads. It measures, computes and
draws nothing: its entries check what runs and checks write, and the report reads the entries.
"""

from functools import partial

from throughline.records.acceptance import Acceptance, Unfinished
from throughline.records.checks import ConvergenceVerdict, Curve, Equivalence, EquivalenceVerdict, Largest, MaxBatch
from throughline.records.compared import Compared
from throughline.records.entry import SCHEMA, Data, Device, Figure
from throughline.records.imported import Imported, ImportedRun, Result, ends
from throughline.records.predictions import MeasuredPoint, NotPredicted, PredictedCell, PredictedSeries, Predictions
from throughline.records.reading import leave_newer, read, read_run, read_run_of, stored_run, write
from throughline.records.run import Checkpoints, Memory, Network, Rank, RunRecord, Series, StartUp, Utilization, Work
from throughline.records.summary import CellRecord, Cost, Goal, LeftOut, RankFigures, Summary, Use

# Each function reads a file of one kind, and raises UserError if the file is not of this kind.
read_summary = partial(read, Summary)
read_equivalence = partial(read, Equivalence)
read_max_batch = partial(read, MaxBatch)
read_curve = partial(read, Curve)
read_verdict = partial(read, ConvergenceVerdict)
read_imported = partial(read, Imported)
read_compared = partial(read, Compared)
read_predictions = partial(read, Predictions)
read_acceptance = partial(read, Acceptance)
read_unfinished = partial(read, Unfinished)

__all__ = [
    "SCHEMA", "CellRecord", "Checkpoints", "Compared", "ConvergenceVerdict", "Cost", "Curve", "Data", "Device",
    "Equivalence", "EquivalenceVerdict", "Figure", "Goal", "Imported", "ImportedRun", "Largest", "LeftOut", "MaxBatch",
    "MeasuredPoint", "Memory", "Network", "NotPredicted", "PredictedCell", "PredictedSeries", "Predictions", "Rank",
    "RankFigures", "Result", "RunRecord", "Series", "StartUp", "Summary", "Use", "Utilization", "Work", "ends",
    "leave_newer", "read_acceptance", "read_compared", "read_curve", "read_equivalence", "read_imported",
    "read_max_batch", "read_predictions", "read_run", "read_run_of", "read_summary", "read_unfinished", "read_verdict",
    "stored_run", "write",
]  # fmt: skip
