"""Small drawings in the page: the repeats of a cell as dots, and the time of every step as lines."""

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup, escape

from throughline import statistics
from throughline.numbers import milliseconds, reading
from throughline.records import CellRecord

REACH = 0.05  # a strip shows the median plus and minus this share; a trace shows at least as much
STRETCHES = 60  # a run with more than twice as many steps is cut into so many stretches
WIDTH, HEIGHT = 240, 56  # size of a trace, in its own units


def strip(cell: CellRecord, unit: str) -> Markup:
    """Return every repeat as a dot on a line that reaches from 5 % below to 5 % above the median.

    A repeat that is further away is an arrow at that end of the line. Several arrows at an end stand above each other.
    """
    middle = cell.median_speed or 1.0
    known = {repeat: value for repeat, value in enumerate(cell.values, start=1) if value is not None}
    sides = {repeat: beyond(value / middle - 1) for repeat, value in known.items()}
    marks = []
    for repeat, value in known.items():
        offset, side = value / middle - 1, sides[repeat]
        same_end = [other for other in known if sides[other] == side]
        shape = _arrow(side, same_end.index(repeat), len(same_end)) if side else _dot(50 + 46 * offset / REACH)
        where = f"{100 * abs(offset):.1f} % {'above' if offset > 0 else 'below'} the median" if offset else "the median"
        marks.append(f"<g><title>repeat {repeat}: {reading(value)} {escape(unit)}, {where}</title>{shape}</g>")
    values = ", ".join(map(reading, known.values()))
    return Markup(
        f'<svg class="strip" viewBox="0 0 100 16" role="img" aria-label="repeats: {values} {escape(unit)}">'
        f'<path d="M4 8H96M50 3V13"/>{"".join(marks)}</svg>'
    )


def beyond(offset: float) -> int:
    """Return -1 if a repeat is beyond the left end of its strip, 1 if it is beyond the right end, else 0.

    `offset` is (repeat - median) / median.
    """
    return 0 if abs(offset) <= REACH else 1 if offset > 0 else -1


def _dot(x: float) -> str:
    return f'<circle class="dot" cx="{x:.1f}" cy="8" r="2.6"/>'


def _arrow(side: int, index: int, count: int) -> str:
    """Return the arrow at one end of a strip that has `count` of them above each other."""
    end, base, y, half = 50 + 49 * side, 50 + 42 * side, 16 * (index + 0.5) / count, min(3.0, 7 / count)
    return f'<path class="outside" d="M{base} {y - half:.1f}L{end} {y:.1f}L{base} {y + half:.1f}z"/>'


def trace(runs: Sequence[Sequence[float]]) -> Markup:
    """Return a line for each run over its steps. A dashed line is the median of all steps."""
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
