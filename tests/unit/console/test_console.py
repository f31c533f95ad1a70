"""The lines of the console: a run that has ended, the cause of a failure, the time left, and one bar below them."""

import io
import logging
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from process_helpers import until
from report_fixture import record
from throughline.console.console import CAUSE_LINES, Console, failure_cause, outcome
from throughline.console.node_jobs import NodeJobs
from throughline.console.plan import Plan
from throughline.files import write_json
from throughline.study import runs
from throughline.study.config import load

FIVE = runs.expand(load([], {"benchmarks": {"b": {"sequence_length": 32, "topologies": ["1n1g"], "repeats": 5}}}))
LOGS = {
    "of a run": (
        "# again: snakemake\noutcome: failed; no record\nx.json: rank 1: killed\n  next: read x.log\nand more\n",
        "x.json: rank 1: killed\n  next: read x.log",
    ),
    "of a run that was stopped": (
        "device: cpu\noutcome: stopped from outside; no record\nnext: run snakemake again\n",
        "outcome: stopped from outside; no record",
    ),
    "of data": ("note: none\nerror: a.bz2 is damaged\n  why:  no end\n", "a.bz2 is damaged\n  why:  no end"),
    "of something unforeseen": ("\n".join(map(str, range(20))), "\n".join(map(str, range(20 - CAUSE_LINES, 20)))),
    "of nothing": ("", "it wrote no log: it was ended before, or never started"),
}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "THROUGHLINE_CALL": ""}.items():
        monkeypatch.setenv(name, value)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(stream: io.StringIO, quiet: bool = False) -> Console:
    shown = Console(logging.StreamHandler(stream), quiet, stream)
    event(shown, LogEvent.WORKFLOW_STARTED)
    return shown


def event(shown: Console, kind: object = None, text: str = "", **values: object) -> None:
    shown.emit(logging.makeLogRecord({"event": kind, "msg": text, "levelno": logging.INFO, "pathname": "", **values}))


def test_the_median_so_far_mixes_no_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary leaves repeats of another program out, so the line does too."""
    monkeypatch.chdir(tmp_path)
    lines = []
    speeds = zip(FIVE, (20.0, 30.0, 200.0, 210.0, 99.0), ("old", "old", "new", "new", "newest"), strict=True)
    for spec, speed, digest in speeds:
        content = record(spec.values(), speed)
        content["environment"] = content["environment"] | {"digest": digest}
        Path(spec.record).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(spec.record), content)
        lines.append(outcome(spec, Plan(FIVE, [])))
    assert lines[1].endswith("(repeat 2): 30.0 samples/s, median of 2: 25.0")
    assert lines[3].endswith("(repeat 4): 210.0 samples/s, median of 2: 205.0")
    assert lines[4].endswith("(repeat 5): 99.0 samples/s")


def test_the_median_so_far_mixes_no_specifications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the configuration, records of the earlier one lie where the new ones will be written."""
    monkeypatch.chdir(tmp_path)
    changed = [replace(spec, steps=replace(spec.steps, timed=spec.steps.timed + 1)) for spec in FIVE]
    for spec, speed in [*zip(FIVE, (20.0,) * 5, strict=True), *zip(changed[:2], (30.0, 40.0), strict=True)]:
        Path(spec.record).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(spec.record), record(spec.values(), speed))
        line = outcome(spec, Plan(changed, []))
    assert line.endswith("(repeat 2): 40.0 samples/s, median of 2: 35.0")


@pytest.mark.parametrize("name", LOGS)
def test_the_cause_in_the_log(tmp_path: Path, name: str) -> None:
    log = tmp_path / "x.log"
    text, expected = LOGS[name]
    log.write_text(text)
    assert failure_cause([str(log), str(tmp_path / "absent.log")]) == expected


def test_the_bar_stays_in_its_line_and_jobs_do_not_write_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("throughline.console.console.BAR_EVERY_S", 0.05)
    shown = console(stream := Terminal())
    event(shown, "plan", "[a plan] with [red]brackets", plan=Plan(FIVE, [["data/a"], ["data/b"]]))
    subprocess.run(["sh", "-c", f"echo early; echo >&2 {'word ' * 99}; echo"], check=True)
    until(lambda: "word word" in stream.getvalue())
    assert shown.progress()[0] == "data: 0 of 2 steps" and shown.progress()[3].count("word") > 50
    event(shown, "outcome", "Finished.")
    assert "[a plan] with [red]brackets" in stream.getvalue() and "\n  time: " in stream.getvalue()
    assert "word " * 20 not in stream.getvalue() and "early" not in stream.getvalue()
    assert os.fstat(1).st_ino != os.fstat(shown._output).st_ino, "the terminal is back"


def test_the_time_left_follows_the_pace_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    shown = console(stream := io.StringIO())
    visits = {f"results/acceptance/{n}": 10.0 for n in range(3)}
    jobs = [["data/a"], ["data/b"], ["data/c"], *([name] for name in visits)]
    monkeypatch.setattr(shown, "_show_progress", lambda: None)
    event(shown, "plan", plan=Plan([], jobs, node_jobs=NodeJobs([], dict.fromkeys(visits, "node 0"), visits)))

    def work(number: int, seconds: float, finished: object = LogEvent.JOB_FINISHED) -> None:
        nonlocal now
        event(shown, LogEvent.JOB_INFO, jobid=number, output=jobs[number])
        now += seconds
        event(shown, finished, job_id=number, jobid=number, output=jobs[number], log=[], rule_name="x")

    assert shown.progress()[:3] == ("data: 0 of 3 steps, node jobs: 0 of 3", 0.0, "")
    work(0, 60.0)
    assert shown.progress()[2] == "", "no node job has ended"
    work(3, 50.0)
    assert shown.progress()[2] == "about 5 min left", "two steps at 110 s, and two node jobs at 50 s"
    work(1, 60.0, LogEvent.JOB_ERROR)
    work(2, 10.0)
    assert shown.progress()[::2] == ("data: 2 of 3 steps, node jobs: 1 of 3, 1 failed", "about 4 min left")
    assert shown.progress()[1] == pytest.approx(180 / (180 + 240))
    assert "node job 1 of 3: node 0 (50 s)\n" in stream.getvalue() and "failed: data/b\n" in stream.getvalue()
    shown.close()


def test_if_the_console_fails_snakemake_speaks_itself(capsys: pytest.CaptureFixture[str]) -> None:
    shown = console(stream := Terminal(), quiet=True)
    event(shown, "outcome", "Finished.")
    event(shown, None, "Deprecated", levelno=logging.WARNING)
    assert stream.getvalue() == ""
    event(shown, LogEvent.JOB_INFO, "no number")
    assert "AttributeError" in capsys.readouterr().err
    logger = logging.getLogger("snakemake.logging")
    (own,) = logger.handlers
    logger.removeHandler(own)
    assert own is shown._own
