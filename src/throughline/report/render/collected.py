"""What lies under results/: the summaries of the configuration, others, searches and checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from throughline.files import UserError
from throughline.records import MaxBatch, Summary, read_max_batch, read_summary
from throughline.report.render import markup
from throughline.report.render.topics import convergence


@dataclass
class Results:
    """What lies under results/."""

    present: dict[Path, Summary] = field(default_factory=dict)
    earlier: dict[Path, Summary] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    largest: list[MaxBatch] = field(default_factory=list)
    checks: list[convergence.Check] = field(default_factory=list)


def collect(results: Path, summaries: Sequence[Path]) -> Results:
    """Read the summaries that belong to the configuration, and find the others; nothing readable is fatal."""
    present = {path.absolute() for path in summaries}
    others = sorted(path for path in results.glob("*/bz*_*.json") if path.absolute() not in present)
    collected = Results()
    for paths, into in ((summaries, collected.present), (others, collected.earlier)):
        into.update(_readable(paths, read_summary, collected, results))
    largest = _readable(sorted(results.glob("*/max_batch_*.json")), read_max_batch, collected, results)
    checks = _readable(sorted(results.glob("*/convergence_*.json")), convergence.read, collected, results)
    collected.largest, collected.checks = list(largest.values()), list(checks.values())
    return collected


def _readable(paths: Sequence[Path], read: Callable[[Path], Any], collected: Results, results: Path) -> dict[Path, Any]:
    """What `read` makes of every file; those of which it makes nothing are listed."""
    values = {}
    for path in paths:
        try:
            values[path] = read(path)
        except (UserError, OSError, ValueError) as error:
            why = error.why if isinstance(error, UserError) and error.why else str(error)
            collected.unreadable.append((relative(path, results), markup.one_line(why)))
    return values


def relative(path: Path, base: Path) -> str:
    """`path` as seen from `base`."""
    return Path(os.path.relpath(path, base)).as_posix()
