"""The peak memory of a process, and the error messages of allocators that are out of memory. Standard library only."""

import re
import resource
from typing import Any

REFUSAL = (
    r"bad_alloc|out[ _]?of[ _]?memory|can't allocate|cannot allocate memory|fail(ed)? to alloc|alloc_failed|"
    r"ResourceExhaustedError"
)
"""The messages with which allocators of any library refuse memory. Upper and lower case are the same.

ResourceExhaustedError is TensorFlow's: its first line does not name memory if a whole graph has failed.
"""
HARMLESS = "this is not a failure"
"""TensorFlow's words after an allocator has refused memory that an operation can do without."""


def is_refusal(text: str) -> bool:
    """True if an error's message, or a line of a process's last output, says that an allocator refused memory."""
    return re.search(REFUSAL, text, re.IGNORECASE) is not None and HARMLESS not in text


def gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def of_process() -> dict[str, Any]:
    """Return a framework's `memory` on a CPU: the peak resident memory of this process, the only peak that is known."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    reasons = {"needed_bytes": "its library does not count allocations on a CPU"}
    return {"needed_bytes": None, "reserved_bytes": peak, "reasons": reasons}
