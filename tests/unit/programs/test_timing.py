"""Points from marks and lines, the timed window in them, and what makes its figure doubtful."""

from __future__ import annotations

import math
from typing import Any

import pytest

from throughline.programs import timing
from throughline.programs.timing import Point, Unreadable, Window
from throughline.spec import Program, Steps, Timing

MARKS = Program(command=("train",), timing=Timing("marks"), unit="tokens", per_step=512)
STEPS = Steps(warmup=2, timed=4)


def logged(figure: str = r"(?P<ms>\S+)ms", **changes: Any) -> Program:
    """Return a program whose log has lines such as `iter 7: loss 2.5, 100.0ms`."""
    pattern = rf"iter (?P<step>\S+):(?: loss (?P<loss>\S+),)? {figure}"
    kept = {name: changes.pop(name) for name in ("of",) if name in changes}
    return Program(
        command=("train",), timing=Timing("pattern", pattern, **kept), unit="tokens", per_step=512, **changes
    )


def marks(*times: float, first: int = 0, every: int = 1, samples: float = 512) -> list[Point]:
    """Return the marks of a program that writes one after each `every` steps."""
    return [Point(at_s, first + number * every, samples * every) for number, at_s in enumerate(times)]


@pytest.mark.parametrize(
    ("line", "value", "loss"),
    [
        ("iter 1,200: 95.5ms", 95.5, None),
        ("\x1b[1m[rank0]: iter 1200: loss 2.75, 95.5ms\x1b[0m", 95.5, 2.75),
        ("3: [default0]:iter 1200: loss 2.75, 95.5ms", 95.5, 2.75),
        ("iter 1200: loss nan, 1,095.5ms", 1095.5, math.nan),
    ],
)
def test_the_figures_of_a_line(line: str, value: float, loss: float | None) -> None:
    point = timing.Lines(logged()).point(line, 3.0)
    assert point == Point(3.0, 1200, value, pytest.approx(loss, nan_ok=True) if loss else None)


@pytest.mark.parametrize("line", ["step 3: val loss 2.0", "", "iter 4: 0.0ms", "iter 4: nanms", "iter 4: -2ms"])
def test_a_line_without_the_time_of_a_step_is_no_point(line: str) -> None:
    assert timing.Lines(logged()).point(line, 3.0) is None


@pytest.mark.parametrize("line", ["iter four: 95.5ms", "iter 4: ?ms", "iter 4: loss high, 95.5ms"])
def test_a_pattern_that_finds_no_numbers(line: str) -> None:
    with pytest.raises(Unreadable, match="finds no numbers in this line: iter"):
        timing.Lines(logged()).point(line, 3.0)


@pytest.mark.parametrize("line", ["", "12.5 7", "12.5 7 512 2", "12.5 seven 512", "nan 7 512", "12.5 7 inf", "\0\0"])
def test_a_garbled_mark(line: str) -> None:
    with pytest.raises(Unreadable, match="a mark is `monotonic_seconds step samples`, and this one is"):
        timing.mark(line)


def test_a_mark_and_one_with_the_time_of_day() -> None:
    assert timing.mark(" 12.5 7 512\n", now_s=12.5) == Point(12.5, 7, 512.0)
    with pytest.raises(Unreadable, match=r"the monotonic clock is at 12.000 s: write time.monotonic\(\)"):
        timing.mark("12.5 7 512", now_s=12.0)


@pytest.mark.parametrize(
    "second",
    [Point(12.0, 8, 1.0), Point(11.0, 9, 1.0), Point(13.0, 7, 1.0)],
    ids=["another process marks the same step", "the clock goes back", "the step goes back"],
)
def test_two_writers_or_a_clock_that_goes_back(second: Point) -> None:
    points = [Point(12.0, 8, 1.0)]
    with pytest.raises(Unreadable, match="two processes write marks, or a clock goes back; only global rank 0"):
        timing.added(points, second, is_mark=True)


def test_a_log_may_print_a_step_again() -> None:
    points: list[Point] = []
    for point in marks(1.0, 2.0, 3.0) + marks(4.0, 5.0, first=2):
        timing.added(points, point, is_mark=False)
    assert [(point.at_s, point.step) for point in points] == [(1.0, 0), (2.0, 1), (3.0, 2), (5.0, 3)]


@pytest.mark.parametrize(
    ("points", "shortest_s", "found"),
    [
        ([], 0.0, None),
        (marks(0, 1), 0.0, None),
        (marks(0, 1, 2), 0.0, (2, None)),
        (marks(0, 1, 2, 3, 4, 5, 6), 0.0, (2, 6)),
        (marks(0, 1, 2, 3, 4, 5, 6, 7, first=400), 0.0, (2, 6)),
        (marks(0, 1, 2, 3, 4, 5, 6, 7), 4.5, (2, 7)),
        (marks(0, 1, 2, 3, 4, 5, 6, 7), 9.0, (2, None)),
        (marks(0, 1, 2, 3, every=3), 0.0, (1, 3)),  # warm-up takes a step more, and the window has six steps
    ],
)
def test_the_window_begins_after_warm_up_and_has_enough_steps(
    points: list[Point], shortest_s: float, found: tuple[int, int | None] | None
) -> None:
    assert timing.bounds(points, STEPS.warmup, STEPS.timed, shortest_s) == found


@pytest.mark.parametrize(
    ("done", "least", "found"),
    [(5, 3, (2, 5)), (4, 3, (1, 4)), (3, 3, None), (2, 3, None), (90, 3, (2, 90))],
)
def test_a_shortened_window(done: int, least: int, found: tuple[int, int] | None) -> None:
    """A third of the steps is warm-up, as was asked for."""
    assert timing.shortened(marks(*range(done + 1)), STEPS, least) == found


def test_the_seconds_between_two_marks() -> None:
    points = marks(10.0, 11.0, 11.5, 13.0)
    assert timing.window(MARKS, points, 1, 3, devices=8) == Window(1, 3, 2.0, [0.5, 1.5])
    every_other = timing.window(MARKS, marks(10.0, 11.0, 13.0, every=2), 0, 2, devices=8)
    assert (every_other.seconds, every_other.step_seconds) == (3.0, [])


@pytest.mark.parametrize(
    ("figure", "of", "value", "seconds"),
    [
        (r"(?P<ms>\S+)", "job", 250.0, 0.25),
        (r"(?P<s>\S+)", "job", 0.25, 0.25),
        (r"(?P<per_s>\S+)", "job", 2048.0, 0.25),
        (r"(?P<steps_per_s>\S+)", "job", 4.0, 0.25),
        (r"(?P<per_s>\S+)", "device", 256.0, 0.25),
    ],
)
def test_the_seconds_that_lines_state(figure: str, of: str, value: float, seconds: float) -> None:
    """A line counts for all steps since the line before."""
    points = [Point(0.0, 0, 1.0), Point(1.0, 1, value), Point(2.0, 4, value)]
    found = timing.window(logged(figure, of=of), points, 0, 2, devices=8)
    assert found.seconds == pytest.approx(4 * seconds) and found.step_seconds == []


def test_lines_with_the_seconds_since_the_line_before() -> None:
    program = logged(r"(?P<interval_s>\S+)")
    points = [Point(0.0, 0, 9.0), Point(1.0, 10, 1.5), Point(2.0, 20, 2.0)]
    assert timing.window(program, points, 0, 2, devices=8).seconds == 3.5


@pytest.mark.parametrize(
    ("figure", "value", "said"),
    [
        (r"(?P<s>\S+)", 1.0, "the time of all 10 steps since the line before: name the group inter"),
        (r"(?P<per_s>\S+)", 10.0, "steps per second, and not tokens per second: name the group steps_"),
        (r"(?P<s>\S+)", 0.2, "it may time other steps than it prints"),
    ],
)
def test_what_may_explain_the_pace_of_lines(figure: str, value: float, said: str) -> None:
    program = logged(figure)
    points = [Point(float(number), 10 * number, value) for number in range(5)]
    (warning,) = timing.warnings(program, points, timing.window(program, points, 0, 4, devices=1))
    assert said in warning


@pytest.mark.parametrize(("arrived_s", "warns"), [(4.0, False), (4.1, False), (4.2, True), (3.8, True)])
def test_lines_that_arrive_at_another_pace_than_they_state(arrived_s: float, warns: bool) -> None:
    program = logged(r"(?P<s>\S+)")
    points = [Point(arrived_s * step / 4, step, 1.0) for step in range(5)]
    said = list(timing.warnings(program, points, timing.window(program, points, 0, 4, devices=1)))
    assert len(said) == warns
    if said:
        assert f"states 4 s for the timed steps, and its lines arrived within {arrived_s:.3g} s" in said[0]
    assert not list(timing.warnings(MARKS, points, timing.window(MARKS, points, 0, 4, devices=1)))


@pytest.mark.parametrize(("samples", "fault"), [(512, False), (514, False), (516, True), (1, True)])
def test_marks_against_per_step(samples: float, fault: bool) -> None:
    points = marks(0, 1, 2, 3, samples=samples)
    said = list(timing.faults(MARKS, points, timing.window(MARKS, points, 0, 3, devices=1)))
    assert len(said) == fault
    if said:
        assert f"count {3 * samples:g} tokens in 3 steps, and per_step says 512 for each" in said[0]


def test_the_columns_of_a_record_are_the_points() -> None:
    points = [Point(40.0, 3, 90.0, 2.5), Point(41.0, 4, 91.0)]
    columns = timing.columns(points)
    assert columns["at_s"] == [0.0, 1.0]
    assert timing.points_of(columns) == [Point(0.0, 3, 90.0, 2.5), Point(1.0, 4, 91.0)]
    assert timing.points_of(timing.columns([])) == []


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        (("12:00:00.5", "12:00:01.0", "12:00:02.5"), [0.5, 1.5]),
        (("23:59:59,250", "00:00:00,750", "00:00:01,000"), [1.5, 0.25]),
        (("1600000000.25", "1600000001.25", "1600000001.50"), [1.0, 0.25]),
    ],
    ids=["with a point", "over midnight, with a comma", "seconds since 1970"],
)
def test_the_time_of_day_of_a_line(times: tuple[str, ...], seconds: list[float]) -> None:
    program = logged(r"(?P<clock>\S+)")
    lines = (timing.Lines(program).point(f"iter {step}: {time}", 9.0) for step, time in enumerate(times))
    points = [point for point in lines if point]
    found = timing.window(program, points, 0, 2, devices=8)
    assert found.step_seconds == pytest.approx(seconds) and found.seconds == pytest.approx(sum(seconds))
