"""The console on real runs of Snakemake: what a person sees."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from clones import Clone
from process_helpers import until

RECORD = "results/quick/bz4_fp32/torch/1n2g/run2.json"
LONG = """
runs: {device: cpu, repeats: 2, steps: {warmup: 2, timed: 100000, max_total_seconds: 300}}
benchmarks:
  quick: {model: bert-tiny, sequence_length: 32, topologies: [1n1g], batch: {fp32: [4]}, options: {data: synthetic}}
"""


def test_each_thing_is_one_line(finished: tuple[Clone, str]) -> None:
    """The console prints the plan, the data, every run with its figure and median, the medians and the report, and
    nothing else."""
    _, printed = finished
    lines = printed[printed.index("The plan:") :].splitlines()
    assert "\x1b" not in printed and "\r" not in printed
    assert lines[:4] == [
        "The plan:",
        "  data: 17 steps to make",
        "  results/quick/bz4_fp32.json: bert-tiny, torch, 1n1g, 1n2g: 4 runs to make, 0 there already",
        "  results/other/bz4_bf16.json: bert-tiny, torch, 1n1g: 1 run to make, 0 there already",
    ]
    runs = [line for line in lines if line.startswith("run ")]
    title = r"run [1-5] of 5: (quick bz4 fp32|other bz4 bf16) torch 1n[12]g \(repeat [12]\): "
    assert len(runs) == 5 and all(re.match(rf"{title}[\d.]+ samples/s", line) for line in runs)
    assert sum("samples/s, median of 2: " in line for line in runs) == 2
    assert lines.count("data: 17 of 17 steps") == 1
    end = lines[lines.index("Finished.") :]
    assert len(end) == 6 and end[-2].startswith("  result: results/report.html")
    assert re.fullmatch(r"  quick bz4 fp32 torch 1n1g: [\d.]+ samples/s \(median of 2\)", end[1])
    said = {"The", "data:", "run", "runs:", "last", "Finished.", "made:"}
    assert {line.split(" ")[0] for line in lines if line[0] != " "} <= said


def test_a_terminal_has_one_bar_with_the_time_left(finished: tuple[Clone, str]) -> None:
    clone, _ = finished
    (clone.path / RECORD).unlink()
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "snakemake", "--configfile", "small.yaml"]
    environment = os.environ | clone.console | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, cwd=clone.path, env=environment, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(main, 65536):
            shown += piece
    except OSError:  # the terminal's other end is closed
        pass
    finally:
        os.close(main)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search(r"runs: 0 of 1 \S+ about \d+ s left quick bz4 fp32 torch 1n2g run 2: ", text)
    assert re.search(r"run 1 of 1: quick bz4 fp32 torch 1n2g \(repeat 2\): [\d.]+ samples/s, median of 2", text)
    assert "result: results/report.html" in text and "Select jobs" not in text
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), "the cursor is there again"


def test_the_closing_words_follow_from_what_was_asked_for(finished: tuple[Clone, str]) -> None:
    clone, _ = finished
    shard, manifest = "data/little/seq32/test_0000.hdf5", "data/little/seq32/manifest.json"
    (clone.path / shard).unlink()
    corpus = clone.made(shard, manifest, **clone.console).stdout
    assert "data: 3 steps to make\n  no training run is to be made\n" in corpus
    assert "data: 3 of 3 steps\nFinished.\n  result: data/little/seq32/manifest.json\n" in corpus
    assert "report" not in corpus
    clone.made()  # make the clone complete again
    for arguments, said in (((), True), (("--quiet", "all"), False)):
        nothing = clone.made(*arguments, **clone.console).stdout
        assert ("Nothing to be done" in nothing) is said
        assert "Finished" not in nothing and "report" not in nothing


def test_an_error_tells_its_cause_at_once(clone: Callable[[str], Clone]) -> None:
    """Also in a quiet call, which has no plan. Without the console, what to do is said last."""
    impossible = clone(LONG.replace("1n1g", "2n1g"))  # nothing names the second machine
    failed = impossible.snakemake("results/quick/bz4_fp32.json", "--quiet", "all", **impossible.console)
    assert failed.returncode == 1
    record = "results/quick/bz4_fp32/torch/2n1g/run1"
    at = failed.stdout.index(f"failed: {record}.json\n")
    cause = failed.stdout[at:].split("\n  log:  ")[0].splitlines()
    assert len(cause) >= 3 and "needs 2 nodes" in cause[1] and cause[-1].startswith("    next: ")
    assert f"\n  log:  {record}.log\n" in failed.stdout
    again = failed.stdout[failed.stdout.index(f"failed: {record[:-1]}2.json\n") :].splitlines()
    assert again[1:3] == ["  for the same reason as before", f"  log:  {record[:-1]}2.log"]
    assert "Traceback" not in failed.stdout and "CalledProcessError" not in failed.stdout
    assert failed.stdout.count("Not everything could be made") == 1
    assert "The plan:" not in failed.stdout
    own = impossible.snakemake("results/quick/bz4_fp32.json").stdout.splitlines()[-4:]
    assert own[0].startswith("Not everything could be made")
    assert sorted(own[1:3]) == [
        f"  failed: {record[:-1]}{number}.json; why: {record[:-1]}{number}.log" for number in (1, 2)
    ]
    assert own[3] == "  next: fix what the logs say, and run the same command again: only the rest is made"


@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["Ctrl-C", "kill -INT"])
def test_an_interruption_ends_it(clone: Callable[[str], Clone], send: Callable[[int, int], None]) -> None:
    begun = clone(LONG)
    process = begun.start("results/quick/bz4_fp32.json", before=["setsid"], **begun.console)
    log = begun.path / "results/quick/bz4_fp32/torch/1n1g/run1.log"
    try:
        until(lambda: log.exists() and "device: " in log.read_text())
        send(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)  # the run has 300 s
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Stopping: running jobs are being ended." in printed
    assert printed.splitlines()[-1].endswith("run the same command again: only the rest is made")
    assert "Traceback" not in printed and "Error" not in printed
    assert not begun.files("results/**/run*.json")


def test_snakemakes_own_output_is_one_variable_away(finished: tuple[Clone, str]) -> None:
    """A dry run has it as well, with the plan at its end."""
    clone, _ = finished
    (clone.path / "results/report.html").unlink()
    dry = clone.made("--dry-run", **clone.console).stdout.splitlines()
    assert "Job stats:" in dry and dry[-1].startswith("This was a dry-run")
    assert dry[-4:-1] == ["The plan:", "  no training run is to be made", "  the result: results/report.html"]
    own = clone.made(**clone.console | {"THROUGHLINE_CONSOLE": "snakemake"}).stdout
    assert "Select jobs to execute..." in own and own.count("The plan:") == own.count("Finished.") == 1
