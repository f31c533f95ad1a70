"""Show the searches for the largest batch that fits."""

from throughline.numbers import mebibytes
from throughline.records import Largest
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Scope, Topic


def table(scope: Scope) -> Table:
    """Return a row per precision and framework; unknown values are n/a."""
    header = [
        "framework",
        "precision",
        "topology",
        "limit",
        "largest batch per device, or size",
        "refused",
        "peak memory, MiB",
    ]
    rows = []
    for search in scope.largest:
        for framework, largest in search.frameworks.items():
            limit = f"{search.memory_limit_mb:,} MiB per worker" if search.memory_limit_mb else "none"
            if largest.device and largest.device.kind != "cpu":
                limit = largest.device.name
            refused = f"{largest.smallest_out_of_memory:,}" if largest.smallest_out_of_memory else "n/a"
            peak = mebibytes(largest.peak_memory_bytes) or "n/a"
            tries = (f"{t.size or t.batch:,} {'fits' if t.status == 'fits' else 'OOM'}" for t in largest.tries)
            cell = [framework, search.precision, search.topology, limit, _answer(largest, search.quantity)]
            rows.append([*cell, refused, peak, ", ".join(tries)])
    return texts([*header, "tries"], rows)


def _answer(largest: Largest, quantity: str) -> str:
    """Return the largest batch or size, or why there is none."""
    if largest.largest_batch_per_device is None:
        return f"{'n/a' if largest.status == 'unsupported' else 'OOM'}: {largest.reason}"
    named = f"{largest.largest_size:,} {quantity}, batch " if largest.largest_size else ""
    more = " or more" if largest.smallest_out_of_memory is None else ""
    return f"{named}{largest.largest_batch_per_device:,}{more}"


INTRO = (
    "The search doubles the batch until it does not fit, and then halves the interval. Each try is a run of a few "
    "steps in new processes. These runs say nothing about speed."
)
TOPIC = Topic("largest", "Largest batch", INTRO, order=210, table=table)
