"""The largest batch per device that fits, as rows of the report."""

from __future__ import annotations

from collections.abc import Iterable

from throughline.records import Largest, MaxBatch
from throughline.report.render import markup

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


def rows(found: Iterable[MaxBatch]) -> list[list[str]]:
    """A row per precision and framework, in the words of HEADER; what is not known is n/a."""
    return [
        [
            framework,
            one.precision,
            one.topology,
            _limit(one, largest),
            _answer(one, largest),
            f"{largest.smallest_out_of_memory:,}" if largest.smallest_out_of_memory else "n/a",
            markup.mebibytes(largest.peak_memory_bytes) or "n/a",
            ", ".join(f"{t.batch_per_device:,} {'fits' if t.status == 'fits' else 'OOM'}" for t in largest.tries),
        ]
        for one in found
        for framework, largest in one.frameworks.items()
    ]


def _limit(one: MaxBatch, largest: Largest) -> str:
    """What memory the device had."""
    if largest.device is None or largest.device.kind == "cpu":
        return f"{one.memory_limit_mb:,} MiB per worker" if one.memory_limit_mb else "none"
    return largest.device.name


def _answer(one: MaxBatch, largest: Largest) -> str:
    """The batch, or why there is none."""
    if largest.largest_batch_per_device is None:
        return f"{'n/a' if largest.status == 'unsupported' else 'OOM'}: {largest.reason}"
    unbounded = largest.smallest_out_of_memory is None
    return f"{largest.largest_batch_per_device:,}" + (" or more" if unbounded else "")
