"""Small drawings inside the page: the repeats of a cell as dots, and the time of every step as lines."""

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup, escape

from throughline import statistics
from throughline.records import Cell
from throughline.report.numbers import milliseconds, reading

REACH = 0.05  # a strip of repeats shows the median plus and minus this share; a trace shows at least as much
STRETCHES = 60  # a run with more than two steps for each is drawn by the extremes of so many stretches
WIDTH, HEIGHT = 240, 56  # of a trace, in its own units


def strip(cell: Cell, unit: str) -> Markup:
    """Every repeat as a dot on a line that reaches from 5 % below to 5 % above the median."""
    middle, dots = cell.median_speed or 1.0, []
    known = [(index, value) for index, value in enumerate(cell.values, start=1) if value is not None]
    for index, value in known:
        offset = (value / middle - 1) / REACH
        shape = "outside" if abs(offset) > 1 else "dot"
        dots.append(
            f'<circle class="{shape}" cx="{50 + 46 * max(-1.0, min(1.0, offset)):.1f}" cy="8" r="2.6">'
            f"<title>repeat {index}: {reading(value)} {escape(unit)}</title></circle>"
        )
    values = ", ".join(reading(value) for _, value in known)
    return Markup(
        f'<svg class="strip" viewBox="0 0 100 16" role="img" aria-label="repeats: {values} {escape(unit)}">'
        f'<path d="M4 8H96M50 3V13"/>{"".join(dots)}</svg>'
    )


def trace(runs: Sequence[Sequence[float]]) -> Markup:
    """A line per run over its steps, from the first to the last; the dashed line is the median of all steps."""
    every = [seconds for run in runs for seconds in run]
    middle = statistics.median(every) or 1.0
    low, high = min(min(every), (1 - REACH) * middle), max(max(every), (1 + REACH) * middle)

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
    """The shortest and the longest step, and the median of all."""
    every = [seconds for run in runs for seconds in run]
    ends = " to ".join(dict.fromkeys(map(milliseconds, (min(every), max(every)))))
    return f"{ends} ms, median {milliseconds(statistics.median(every) or 0.0)}"


def _thinned(steps: Sequence[float]) -> list[float]:
    """All steps; of many steps the shortest and the longest of each stretch, so that no outlier is lost."""
    if len(steps) <= 2 * STRETCHES:
        return list(steps)
    edges = [len(steps) * place // STRETCHES for place in range(STRETCHES + 1)]
    stretches = [steps[start:end] for start, end in pairwise(edges)]
    return [seconds for stretch in stretches for seconds in (min(stretch), max(stretch))]
