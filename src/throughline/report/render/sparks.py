"""Small drawings in the page: the repeats of a cell as dots, and the time of every step as lines."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from markupsafe import Markup, escape

from throughline import statistics
from throughline.numbers import milliseconds, percent, reading
from throughline.report.analysis.cells import Cell

REACHES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""A strip shows the median plus and minus one of these shares, or what else all of its table's repeats need."""
STEPS = 0.05  # a trace shows at least the median plus and minus this share
STRETCHES = 60  # a run with more than twice as many steps is cut into so many stretches
WIDTH, HEIGHT = 240, 56  # size of a trace, in its own units


def reach(cells: Iterable[Cell]) -> float:
    """Return by which share of their medians the strips of these cells reach to both sides: all repeats are inside."""
    most = max((abs(value / cell.median - 1) for cell in cells if cell.ok for value in cell.repeats), default=0.0)
    return next((share for share in REACHES if share >= most), most)


def reaching(share: float) -> str:
    """Return how far strips reach in words."""
    return f"median ± {percent(share)}"


def strip(cell: Cell, share: float) -> Markup:
    """Return every repeat as a dot on a line that reaches from a `share` below the median to as much above it."""
    unit, marks = escape(cell.group.unit), []
    for repeat, value in enumerate(cell.record.values, start=1):
        if value is not None:
            offset = value / cell.median - 1
            where = f"{percent(abs(offset), 1)} {'above' if offset > 0 else 'below'} the median"
            marks.append(
                f"<g><title>repeat {repeat}: {reading(value)} {unit}, {where if offset else 'the median'}</title>"
                f'<circle cx="{50 + 46 * offset / share:.1f}" cy="8" r="3.4"/></g>'
            )
    return Markup(
        f'<svg class="strip" viewBox="0 0 100 16" role="img" aria-label="repeats: '
        f'{", ".join(map(reading, cell.repeats))} {unit}"><path d="M4 8H96M50 3V13"/>{"".join(marks)}</svg>'
    )


def trace(runs: Sequence[Sequence[float]]) -> Markup:
    """Return a line for each run over its steps. A dashed line is the median of all steps."""
    every = [seconds for run in runs for seconds in run]
    middle = statistics.median(every) or 1.0
    low, high = min(min(every), (1 - STEPS) * middle), max(max(every), (1 + STEPS) * middle)

    def height(seconds: float) -> str:
        return f"{HEIGHT * (high - seconds) / (high - low):.3g}"

    lines = []
    for run in runs:
        points = _thinned(run)
        last = max(len(points) - 1, 1)
        places = (f"{WIDTH * at / last:.4g},{height(seconds)}" for at, seconds in enumerate(points))
        lines.append(f'<polyline points="{" ".join(places)}"/>')
    return Markup(
        f'<svg class="trace" viewBox="0 -2 {WIDTH} {HEIGHT + 4}" role="img" aria-label="{span_of(runs)}">'
        f'<path d="M0 {height(middle)}H{WIDTH}"/>{"".join(lines)}</svg>'
    )


def span_of(runs: Sequence[Sequence[float]]) -> str:
    """Return the shortest and the longest step, and the median of all steps, as text."""
    every = [seconds for run in runs for seconds in run]
    ends = " to ".join(dict.fromkeys(map(milliseconds, (min(every), max(every)))))
    return f"{ends} ms, median {milliseconds(statistics.median(every) or 0.0)}"


def _thinned(steps: Sequence[float]) -> list[float]:
    """Return all steps; of a long run the shortest and the longest step of each stretch, so that no outlier is lost."""
    if len(steps) <= 2 * STRETCHES:
        return list(steps)
    edges = [len(steps) * index // STRETCHES for index in range(STRETCHES + 1)]
    stretches = [steps[start:end] for start, end in pairwise(edges)]
    return [seconds for stretch in stretches for seconds in (min(stretch), max(stretch))]
