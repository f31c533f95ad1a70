"""Messages between launcher, agents and ranks are read as they were written, and unknown keys are refused."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import messages
from throughline.spec import read

RESUMED = messages.Training(10, 5, 100, "/checkpoints", "ab", messages.Checkpoint(5, "step_5.checkpoint", "cd"), None)
SAMPLES = messages.NodeSamples(
    1.0, 4, 9, [], [], messages.Reasons({}, {}, [], None), [messages.Sample(0.0, 0.1, {"busy_s": 1.0}, {}, [])]
)


@pytest.mark.parametrize(
    "message",
    [
        training_fixtures.plan("2n2g", "slurm"),
        training_fixtures.plan(convergence=RESUMED),
        training_fixtures.report(loss=[float("inf")] * 4),
        messages.RankReport(1, 2.0, "ok", trained=messages.Trained([{"step": 0, "loss": 1.0}], [None])),
        messages.RankReport(1, 2.0, "oom", "MemoryError: too much"),
        SAMPLES,
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_reads_as_it_was_written(message: Any, tmp_path: Path) -> None:
    messages.write(message, tmp_path / "message.json")
    assert messages.read(type(message), tmp_path / "message.json") == message
    assert [path.name for path in tmp_path.iterdir()] == ["message.json"]


@pytest.mark.parametrize(
    "message",
    [
        messages.Alive(1, False),
        messages.NodeReady(1, [4, 5]),
        messages.Start(["a:1", "b:2"]),
        messages.RankProgress(0, messages.Beat("training", 1, 9)),
        messages.RankEnded(3, -9),
        messages.Refusal(0, [messages.GpuFault("busy")]),
        messages.NoTelemetry(0, "failed"),
        messages.Stacks(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_line_reads_as_it_was_said(message: messages.Line) -> None:
    line = messages.line(message)
    assert line.startswith(messages.MARK) and "\n" not in line and messages.heard(line) == message


def test_a_key_too_many_or_too_few_is_named() -> None:
    value = dataclasses.asdict(training_fixtures.plan(convergence=RESUMED))
    with pytest.raises(ValueError, match="LaunchPlan: unknown key color"):
        read(messages.LaunchPlan, value | {"color": "red"})
    del value["convergence"]["resume"]["sha256"]
    with pytest.raises(ValueError, match="Checkpoint: missing key sha256"):
        read(messages.LaunchPlan, value)
    with pytest.raises(ValueError, match=r"LaunchPlan: \[\] is no object"):
        read(messages.LaunchPlan, [])
    with pytest.raises(ValueError, match="RankEnded: missing key status"):
        messages.heard(messages.MARK + json.dumps({"RankEnded": {"rank": 1}}))


def test_what_runs_beside_ranks_has_the_launchers_interpreter_where_the_node_has_it(tmp_path: Path) -> None:
    there = tmp_path / "python"
    plan = training_fixtures.plan(workflow=str(there), telemetry=False)
    assert plan.workflow_python == sys.executable
    there.touch()
    assert plan.workflow_python == str(there)
