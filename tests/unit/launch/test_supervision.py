"""Progress, heartbeat and watchdog of a run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import training_fixtures
from throughline.launch import supervision
from throughline.launch.request import RunRequest
from throughline.messages import Beat
from throughline.rank import heartbeat


@pytest.mark.parametrize(
    ("framework", "options", "kind", "asked", "limit_s"),
    [
        ("torch", {}, "cuda", None, 300.0),
        ("torch", {"compile": True}, "cpu", None, 1800.0),
        ("torch", {"compile": "auto"}, "cuda", None, 1800.0),
        ("torch", {"compile": "auto"}, "cpu", None, 300.0),
        ("jax", {}, "cpu", None, 1800.0),
        ("jax", {}, "cpu", 5.0, 5.0),
    ],
)
def test_a_framework_that_compiles_has_more_time(
    framework: str, options: dict[str, bool | str], kind: str, asked: float | None, limit_s: float
) -> None:
    spec = training_fixtures.spec(framework=framework, options=options)
    asked_for = RunRequest(spec, Path("run1.json"), Path("run1.log"), hang_after_s=asked)
    assert supervision.hang_after_s(asked_for, kind) == limit_s


def test_a_heartbeat_is_seen_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.beat"
    assert heartbeat.read(path) == Beat("start", 0, 0)
    heart = heartbeat.Heart(path)
    heart.phase("training", 100)
    heart.step(41)
    assert heartbeat.read(path) == Beat("training", 41, 100)
    heart.phase("end")
    assert heartbeat.read(path) == Beat("end", 0, 0)
    assert list(heart.durations()) == ["start", "training", "end"]


def test_the_watchdog_names_who_is_behind() -> None:
    dog = supervision.Watchdog(10.0, 0.0)
    assert dog.look([Beat("training", 4, 9), Beat("training", 3, 9)], 5.0) is None
    assert dog.look([Beat("training", 5, 9), Beat("training", 4, 9)], 14.0) is None, "it moved"
    assert dog.look([Beat("training", 5, 9), Beat("training", 4, 9)], 23.9) is None
    words = dog.look([Beat("training", 5, 9), Beat("training", 4, 9)], 24.1)
    assert words == "no progress for 10 s: rank 1 in training, step 4 of 9"


def test_progress_is_one_line() -> None:
    stream = io.StringIO()
    spec = training_fixtures.spec(topology="1n2g")
    line = supervision.Progress(spec, stream)
    line.show([Beat("training", 1, 9)])
    assert stream.getvalue() == "", "not on every look where there is no terminal"
    line.say("812.0 samples/s")
    assert stream.getvalue() == "bert bz4 fp32 torch 1n2g run 1: 812.0 samples/s\n"
    assert line._line(Beat("join", 0, 0), 1.0) == "join"
    line._began = ("training", 10.0, 0)
    assert line._line(Beat("training", 4, 8), 12.0) == "step 4/8, 16 samples/s, 2 s left"
