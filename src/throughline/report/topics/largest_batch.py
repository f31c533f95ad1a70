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
        for framework, found in search.frameworks.items():
            limit = f"{search.memory_limit_mb:,} MiB per worker" if search.memory_limit_mb else "none"
            if found.device and found.device.kind != "cpu":
                limit = found.device.name
            refused = f"{found.smallest_out_of_memory:,}" if found.smallest_out_of_memory else "n/a"
            peak = mebibytes(found.peak_memory_bytes) or "n/a"
            tries = (f"{t.size or t.batch_per_device:,} {'fits' if t.status == 'fits' else 'OOM'}" for t in found.tries)
            cell = [framework, search.precision, search.topology, limit, _answer(found, search.quantity)]
            rows.append([*cell, refused, peak, ", ".join(tries)])
    return texts([*header, "tries"], rows)


def _answer(found: Largest, quantity: str) -> str:
    """Return the largest batch or size, or why there is none."""
    if found.largest_batch_per_device is None:
        return f"{'n/a' if found.status == 'unsupported' else 'OOM'}: {found.reason}"
    named = f"{found.largest_size:,} {quantity}, batch " if found.largest_size else ""
    return f"{named}{found.largest_batch_per_device:,}" + (" or more" if found.smallest_out_of_memory is None else "")


INTRO = (
    "The search doubles the batch until it does not fit, and then halves the interval. Each try is a run of a few "
    "steps in new processes. These runs say nothing about speed."
)
TOPIC = Topic("largest", "Largest batch", INTRO, order=210, table=table)
