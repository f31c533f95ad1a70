"""Show the searches for the largest batch that fits."""

from throughline.numbers import mebibytes
from throughline.records import Largest, MaxBatch
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Scope, Topic


def table(scope: Scope) -> Table | None:
    """Return a line for each precision and framework."""
    return texts([
        {
            "framework": framework,
            "precision": search.precision,
            "topology": search.topology,
            "limit": _limit(search, largest),
            "largest batch per device, or size": _answer(largest, search.quantity),
            "refused": f"{largest.smallest_out_of_memory:,}" if largest.smallest_out_of_memory else None,
            "peak memory, MiB": mebibytes(largest.peak_memory_bytes),
            "tries": ", ".join(
                f"{each.size or each.batch:,} {'fits' if each.status == 'fits' else 'OOM'}" for each in largest.tries
            ),
        }
        for search in scope.largest
        for framework, largest in search.frameworks.items()
    ])  # fmt: skip


def _limit(search: MaxBatch, largest: Largest) -> str:
    if largest.device and largest.device.kind != "cpu":
        return largest.device.name
    return f"{search.memory_limit_mb:,} MiB per worker" if search.memory_limit_mb else "none"


def _answer(largest: Largest, quantity: str) -> str:
    """Return the largest batch or size, or why there is none."""
    if largest.largest_batch_per_device is None:
        return f"{'n/a' if largest.status == 'unsupported' else 'OOM'}: {largest.reason}"
    named = f"{largest.largest_size:,} {quantity}, batch " if largest.largest_size else ""
    more = " or more" if largest.smallest_out_of_memory is None else ""
    return f"{named}{largest.largest_batch_per_device:,}{more}"


INTRO = (
    "The search doubles the batch until it does not fit, and then halves the interval. Each try is a run of a few "
    "steps in new processes. These runs say nothing about speed. The largest batch need not be the best: large batches "
    "converge slower, and fine-tuning wants small ones (a blog on the cost of training transformers; McCandlish et al. "
    "2018 measure from which batch on)."
)
TOPIC = Topic("largest", "Largest batch", INTRO, order=210, table=table)
