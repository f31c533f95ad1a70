"""The parts of a run's record that say where, when and with which outcome it ran. They are read without validation.

So a plan of hundreds of runs, a page and the launcher look at many records quickly. Figures come from `read_run` alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Glance:
    """What a record says besides its figures. A value that it does not have is None or empty.

    corpus: the name of the data; device: the kind of device; window: the start and the end of the whole run, in UTC.
    """

    benchmark: str
    framework: str
    corpus: str | None
    status: str
    device: str | None
    window: tuple[datetime, datetime] | None
    environment: dict[str, Any]
    data: dict[str, Any]
    configuration: dict[str, Any] | None
    step_seconds: list[float]
    peak_memory_bytes: int | None

    @property
    def seconds(self) -> float | None:
        """How long the whole run took. None if it is not known, or if the clock was set back in between."""
        if self.window is None:
            return None
        taken = (self.window[1] - self.window[0]).total_seconds()
        return taken if taken >= 0 else None


def glance(path: Path) -> Glance | None:
    """Look at the record in a file. Return None if there is no such file, or if it is no record."""
    try:
        value = json.loads(path.read_bytes())
        return Glance(
            benchmark=str(value["spec"]["benchmark"]),
            framework=str(value["spec"]["framework"]),
            corpus=(value["spec"].get("corpus") or {}).get("name"),
            status=str(value["status"]),
            device=(value.get("device") or {}).get("kind"),
            window=_window(value),
            environment=value.get("environment") or {},
            data=value.get("data") or {},
            configuration=value.get("configuration"),
            step_seconds=value.get("step_seconds") or [],
            peak_memory_bytes=value.get("peak_memory_bytes"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def siblings(record: Path) -> dict[str, Glance]:
    """Return the successful records of the same framework and topology by name, oldest first."""
    paths = [path for path in record.parent.glob("run*.json") if path.name != record.name]
    oldest_first = sorted(paths, key=lambda path: path.stat().st_mtime)
    repeats = {path.stem: glance(path) for path in oldest_first}
    return {name: run for name, run in repeats.items() if run and run.status == "ok" and run.environment}


def _window(value: Any) -> tuple[datetime, datetime] | None:
    try:
        start, end = (datetime.fromisoformat(value[key]).astimezone(UTC) for key in ("started", "ended"))
    except (KeyError, TypeError, ValueError):
        return None
    return start, end
