"""The largest batch per device that fits, as rows of the page."""

from __future__ import annotations

from throughline.records import Largest, MaxBatch
from throughline.report.numbers import mebibytes
from throughline.report.render.sheets import Table
from throughline.report.topics import Scope, Topic

HEADER = [
    "framework",
    "precision",
    "topology",
    "limit",
    "largest batch per device",
    "refused",
    "peak memory, MiB",
    "tries",
]


def table(scope: Scope) -> Table:
    """A row per precision and framework, in the words of HEADER; what is not known is n/a."""
    return HEADER, [
        [
            framework,
            one.precision,
            one.topology,
            _limit(one, largest),
            _answer(largest),
            f"{largest.smallest_out_of_memory:,}" if largest.smallest_out_of_memory else "n/a",
            mebibytes(largest.peak_memory_bytes) or "n/a",
            ", ".join(f"{t.batch_per_device:,} {'fits' if t.status == 'fits' else 'OOM'}" for t in largest.tries),
        ]
        for one in scope.largest
        for framework, largest in one.frameworks.items()
    ]


def _limit(one: MaxBatch, largest: Largest) -> str:
    """What memory the device had."""
    if largest.device is None or largest.device.kind == "cpu":
        return f"{one.memory_limit_mb:,} MiB per worker" if one.memory_limit_mb else "none"
    return largest.device.name


def _answer(largest: Largest) -> str:
    """The batch, or why there is none."""
    if largest.largest_batch_per_device is None:
        return f"{'n/a' if largest.status == 'unsupported' else 'OOM'}: {largest.reason}"
    unbounded = largest.smallest_out_of_memory is None
    return f"{largest.largest_batch_per_device:,}" + (" or more" if unbounded else "")


INTRO = "Found by doubling and bisection, every try a run of a few steps in fresh processes; no statement about speed."
TOPIC = Topic("largest", "Largest batch", INTRO, table=table)
