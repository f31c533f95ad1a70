"""How far apart in time two sides were measured: one after the other, at the same time, or in turn."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from throughline.report.analysis.sides import Side, in_rounds

DAY_S = 86_400


def of(pairs: Sequence[tuple[Side, Side]]) -> dict[str, Any]:
    """Return `days_apart` and `together` of records/compared.py's `ComparedArchive`, from all pairs of cells."""
    if pairs and all(_starts(one) and _starts(one) == _starts(other) for one, other in pairs):
        return {"days_apart": 0.0, "together": "the same runs"}
    if pairs and all(len(_starts(pair[0])) > 1 and in_rounds(pair) for pair in pairs):
        return {"days_apart": 0.0, "together": "in turn"}
    spans = [_span([pair[number] for pair in pairs]) for number in (0, 1)]
    if None in spans:
        return {}
    older, newer = sorted(span for span in spans if span)
    gap = (newer[0] - older[1]).total_seconds()
    if gap < 0:
        return {"days_apart": 0.0, "together": "at the same time"}
    return {"days_apart": gap / DAY_S}


def _starts(side: Side) -> list[str | None]:
    return list(side.row.cell.starts) if side.row.cell else []


def _span(sides: Sequence[Side]) -> tuple[datetime, datetime] | None:
    """Return the start of the first and the end of the last run; None if the summaries do not tell."""
    times = list(_times(sides))
    return (min(times), max(times)) if times else None


def _times(sides: Sequence[Side]) -> Iterator[datetime]:
    for side in sides:
        cell = side.row.cell
        for text in (cell.started, cell.ended) if cell else ():
            try:
                time = datetime.fromisoformat(text or "")
            except ValueError:
                continue
            if time.tzinfo:  # the other side's times have a zone
                yield time
