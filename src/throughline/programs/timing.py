"""Where the time of a step comes from: the marks of a program, or the lines of its log; and the timed window in them.

A `Point` is one mark or one matching line. The window begins with the first point that is `warmup` steps after the
first point, and ends with the first point that is `timed` steps later. So the first point is always warm-up: in the
steps before it, programs load data and compile.

A mark is a time of the program's own clock after a synchronization, so the window is the time between two marks. So it
is with the time of day in a line. A line that states the time or the rate of a step counts for all steps since the line
before, and the window is the sum. So it is with lines that state the seconds since the line before.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from throughline.log_kinds.kind import plain
from throughline.spec.options import Steps
from throughline.spec.program import TIMES, Program

ARRIVAL_DIFFERS = 0.03
"""The difference between the times that a log states and the arrival of its lines from which a run has a warning."""
CAUSE_DIFFERS = 0.3
"""The difference between the arrival of lines and what explains it, up to which a warning names the cause."""
UNITS_DIFFER = 0.005
"""The difference between the samples in marks and `per_step` from which a run is invalid."""
DAY_S = 24 * 60 * 60.0
COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")


class Unreadable(Exception):
    """A mark or a line cannot be what it should be. The text says what it is."""


@dataclass(frozen=True)
class Point:
    """A mark or a line of a program's log.

    at_s: the time of the mark, or when the line arrived, in seconds of the node's monotonic clock; step: the number
    of the step; value: the figure of the line as it is printed, or the samples of a mark since the mark before.
    """

    at_s: float
    step: int
    value: float
    loss: float | None = None


@dataclass(frozen=True)
class Window:
    """The timed window of a program: its first and last point in `points`, and the seconds of its steps.

    seconds: the length of the window; step_seconds: the time of each step, empty if not every step has a point.
    """

    first: int
    last: int
    seconds: float
    step_seconds: list[float]


class Lines:
    """Finds the points in the lines of a log."""

    def __init__(self, program: Program) -> None:
        self.group = program.timing.group or ""
        self.pattern = re.compile(program.timing.pattern or "")

    def point(self, line: str, at_s: float) -> Point | None:
        """Return the point of a line. Raise Unreadable if a figure is no number.

        What a launcher adds before the line does not matter. None if the line is no step, or its time or throughput is
        not above 0, as in the first lines of some logs.
        """
        line = COLOURS.sub("", line)
        found = self.pattern.search(line) or self.pattern.search(plain(line))
        if not found:
            return None
        named = found.groupdict()
        try:
            loss = _number(named["loss"]) if named.get("loss") else None
            value = (_clock if self.group == "clock" else _number)(named[self.group])
            step = int(_number(named["step"]))
        except (TypeError, ValueError):
            raise Unreadable(f"the pattern finds no numbers in this line: {line[:200]}") from None
        usable = math.isfinite(value) and (value > 0 or self.group == "clock")
        return Point(at_s, step, value, loss) if usable else None


def mark(line: str, now_s: float = math.inf) -> Point:
    """Return the point of a mark, `monotonic_seconds step samples`, that was read at `now_s` of the same clock.

    Raise Unreadable for anything else.
    """
    try:
        at_s, step, samples = line.split()
        point = Point(float(at_s), int(step), float(samples))
    except ValueError:
        point = None
    if point is None or not (math.isfinite(point.at_s) and math.isfinite(point.value)):
        raise Unreadable(f"a mark is `monotonic_seconds step samples`, and this one is {line[:200]!r}")
    if point.at_s > now_s:
        raise Unreadable(
            f"the mark of step {point.step} is at {point.at_s:.3f} s, and the monotonic clock is at {now_s:.3f} s: "
            "write time.monotonic(), not the time of day"
        )
    return point


def added(points: list[Point], new: Point, is_mark: bool) -> None:
    """Add a point in its place. Raise Unreadable if it cannot come after the last one.

    A log may print a step again. Such a line is left out.
    """
    last = points[-1] if points else None
    if last and is_mark and (new.at_s <= last.at_s or new.step <= last.step):
        raise Unreadable(
            f"the mark of step {new.step} at {new.at_s:.3f} s follows that of step {last.step} at {last.at_s:.3f} s: "
            "two processes write marks, or a clock goes back; only global rank 0 may write"
        )
    if last is None or new.step > last.step:
        points.append(new)


def bounds(points: Sequence[Point], warmup: int, timed: int, shortest_s: float = 0.0) -> tuple[int, int | None] | None:
    """Return the indices of the window's first and last point; None as long as warm-up lasts.

    The last point is None as long as there are fewer than `timed` steps, or less than `shortest_s` seconds.
    """
    if not points:
        return None
    first = _at_step(points, points[0].step + warmup)
    if first == len(points):
        return None
    enough, long_enough = _at_step(points, points[first].step + timed), points[first].at_s + shortest_s
    last = bisect_left(points, long_enough, lo=enough, key=lambda point: point.at_s)
    return first, last if last < len(points) else None


def shortened(points: Sequence[Point], steps: Steps, least: int) -> tuple[int, int] | None:
    """Return the window of a run that `max_total_seconds` ends: the last part of its points, as large as `timed` is
    beside `warmup`. None if it would have fewer than `least` steps."""
    share = steps.warmup / (steps.warmup + steps.timed)
    done = points[-1].step - points[0].step
    first = _at_step(points, points[0].step + min(steps.warmup, round(share * done)))
    return (first, len(points) - 1) if points[-1].step - points[first].step >= least else None


def window(program: Program, points: Sequence[Point], first: int, last: int, devices: int) -> Window:
    """Return the window between two points. `devices` are those of the run, for a throughput of one device."""
    inside = list(zip(points[first:last], points[first + 1 : last + 1], strict=True))
    steps = [after.step - before.step for before, after in inside]
    if program.timing.group is None:
        taken = [after.at_s - before.at_s for before, after in inside]
    elif program.timing.group == "clock":
        taken = [(after.value - before.value) % DAY_S for before, after in inside]
    elif program.timing.group == "interval_s":
        taken = [after.value for _, after in inside]
    else:
        taken = [count * step_s(program, after.value, devices) for count, (_, after) in zip(steps, inside, strict=True)]
    return Window(first, last, math.fsum(taken), taken if set(steps) == {1} else [])


def recorded_window(program: Program, points: Sequence[Point], warmup: int, timed: int, devices: int) -> Window:
    """Return the window of a record, which has the numbers of its steps. Raise ValueError if no points are there."""
    steps = [point.step for point in points]
    first = steps.index(steps[0] + warmup)
    return window(program, points, first, steps.index(steps[first] + timed), devices)


def losses(points: Sequence[Point], first: int, last: int) -> list[float] | None:
    """Return the losses of the points in a window; None unless all of them have a loss."""
    stated = [point.loss for point in points[first + 1 : last + 1] if point.loss is not None]
    return stated if len(stated) == last - first else None


def step_s(program: Program, value: float, devices: int) -> float:
    """Return the seconds of a step from the figure of a line."""
    group = program.timing.group
    if group in TIMES:
        return value * TIMES[group]
    if group == "steps_per_s":
        return 1 / value
    return program.per_step / (value * (devices if program.timing.of == "device" else 1))


def faults(program: Program, points: Sequence[Point], found: Window) -> Iterable[str]:
    """Yield why the figure of a window must not be used in a median."""
    steps = points[found.last].step - points[found.first].step
    if not found.seconds > 0:
        yield f"the {steps} timed steps take {found.seconds:g} s"
    if program.timing.group is None:
        samples, asked = math.fsum(point.value for point in points[found.first + 1 : found.last + 1]), program.per_step
        if abs(samples - asked * steps) > UNITS_DIFFER * asked * steps:
            yield (
                f"its marks count {samples:g} {program.unit} in {steps} steps, and per_step says {asked} for each; "
                "correct per_step"
            )


def warnings(program: Program, points: Sequence[Point], found: Window) -> Iterable[str]:
    """Yield a warning if a log's lines arrive at another pace than they state."""
    if program.timing.group is None:
        return
    arrived = points[found.last].at_s - points[found.first].at_s
    if abs(arrived - found.seconds) > ARRIVAL_DIFFERS * found.seconds:
        yield (
            f"the log states {found.seconds:.3g} s for the timed steps, and its lines arrived within {arrived:.3g} s: "
            f"{_cause(program, points, found, arrived)}"
        )


def _cause(program: Program, points: Sequence[Point], found: Window, arrived_s: float) -> str:
    """Return what may explain that lines arrive at another pace than they state, and what to do."""
    ratio, group = found.seconds / (arrived_s or math.inf), program.timing.group
    steps = (points[found.last].step - points[found.first].step) / (found.last - found.first)
    if group in TIMES and steps > 1 and abs(ratio / steps - 1) < CAUSE_DIFFERS:
        return (
            f"a line seems to have the time of all {steps:.3g} steps since the line before: name the group interval_s"
        )
    if group == "per_s" and program.per_step > 1 and abs(ratio / program.per_step - 1) < CAUSE_DIFFERS:
        return f"it seems to print steps per second, and not {program.unit} per second: name the group steps_per_s"
    return "it may time other steps than it prints, or leave out a part of each; marks would tell"


def columns(points: Sequence[Point]) -> dict[str, list[Any]]:
    """Return the points as the record has them: seconds since the first point, steps, figures, and losses."""
    origin = points[0].at_s if points else 0.0
    return {
        "at_s": [point.at_s - origin for point in points],
        "step": [point.step for point in points],
        "value": [point.value for point in points],
        "loss": [point.loss for point in points],
    }


def points_of(columns: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Return the points from the columns of a record."""
    return [Point(*row) for row in zip(*(columns[name] for name in ("at_s", "step", "value", "loss")), strict=True)]


def _at_step(points: Sequence[Point], step: int) -> int:
    """Return the index of the first point from this step on."""
    return bisect_left(points, step, key=lambda point: point.step)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _clock(text: str) -> float:
    """Return the seconds of a time of day such as `12:30:05.123`, or of a number of seconds."""
    return math.fsum(_number(part.replace(",", ".")) * 60**power for power, part in enumerate(text.split(":")[::-1]))
