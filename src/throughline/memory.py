"""Memory of one process: its peak, and the words of an allocator that refuses more. Standard library only."""

import re
import resource
from typing import Any

REFUSAL = r"bad_alloc|out of memory|can't allocate|cannot allocate memory|fail(ed)? to alloc|alloc_failed"
"""What an allocator says that refuses, of any library, in large or small letters."""


def is_refusal(text: str) -> bool:
    """Whether an error's message, or a line of a process's last words, is an allocator's refusal."""
    return re.search(REFUSAL, text, re.IGNORECASE) is not None


def gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def of_process(framework: str) -> dict[str, Any]:
    """A framework's `memory` on a CPU: the most that this process has held, as nothing else has a peak."""
    why = f"{framework} does not count its allocations on a CPU"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"needed_bytes": None, "reserved_bytes": peak, "reasons": {"needed_bytes": why}}
