"""Around the runs: with real processes and fresh clones, Snakemake is killed, two workflows at once, files that are not
valid records, folders that cannot be written, hostile text. And no written file names its machine."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from markdown_it import MarkdownIt

from clones import Clone, copy, job_counts
from process_helpers import alive, needs, until, workers_below, works
from report_fixture import HOSTILE, observed, record
from throughline import processes
from throughline.records import read_run, read_summary
from throughline.study import config, runs

SYNTHETIC = """
corpus: {{name: little, parts: 1, shards: {{training: 1, test: 1}}, sequences: {{32: 5}}, masking: {{dupe_factor: 1}}}}
runs: {{device: cpu, repeats: {repeats}, steps: {{warmup: 2, timed: 100000, max_total_seconds: {max_total_seconds}}}}}
benchmarks:
  quick: {{model: bert-tiny, sequence_length: 32, topologies: [1n1g], batch: {{fp32: [4]}},
      options: {{data: synthetic}}}}
"""
SUMMARY = "results/quick/bz4_fp32.json"
FIRST, SECOND = (f"results/quick/bz4_fp32/torch/1n1g/run{repeat}.json" for repeat in (1, 2))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Popen[str]]]:
    """Start Snakemake in a clone, with temporary files only of this test. Its processes end with the test."""
    started: list[Popen[str]] = []
    (tmp_path / "temporary").mkdir()

    def begin(clone: Clone, *arguments: str, **options: Any) -> Popen[str]:
        started.append(clone.start(*arguments, TMPDIR=str(tmp_path / "temporary"), **options))
        return started[-1]

    yield begin
    for process in started:
        for pid in [process.pid, *processes.descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def said(process: Popen[str], status: int = 0) -> str:
    """Wait for a process that must end with `status`; return what it printed."""
    printed, _ = process.communicate(timeout=900)
    assert process.returncode == status, printed
    return printed


def test_snakemake_is_killed_in_the_middle_of_a_run(tmp_path: Path, start: Callable[..., Popen[str]]) -> None:
    clone = copy(tmp_path / "clone", SYNTHETIC.format(repeats=2, max_total_seconds=3))
    first = start(clone, SUMMARY)
    until(lambda: (clone.path / FIRST).exists() and workers_below(first.pid))
    everything = processes.descendants(first.pid)
    before = clone.times(FIRST)
    first.kill()
    until(lambda: not any(alive(pid) for pid in everything), 20)
    assert not (clone.path / SECOND).exists()
    assert not list((tmp_path / "temporary").glob("throughline-*"))

    assert "--unlock" in said(start(clone, SUMMARY), status=1)
    said(start(clone, "--unlock"))
    assert job_counts(said(start(clone, SUMMARY)))["run"] == 1
    assert clone.times(FIRST) == before
    cell = read_summary(clone.path / SUMMARY).frameworks["torch"]["1n1g"]
    assert cell.n_ok == 2 and len(set(cell.values)) == 2
    assert not list(clone.path.rglob("*.partial*"))


def test_two_workflows_at_once_do_not_measure_at_once(tmp_path: Path, start: Callable[..., Popen[str]]) -> None:
    """The first one's rank stands still until the second one waits for it."""
    quick, other = (
        copy(tmp_path / name, SYNTHETIC.format(repeats=1, max_total_seconds=3)) for name in ("one", "other")
    )
    first = start(quick, SUMMARY)
    until(lambda: workers_below(first.pid))
    (rank,) = workers_below(first.pid)
    os.kill(rank, signal.SIGSTOP)
    second = start(other, SUMMARY)
    goes_on = threading.Timer(120, os.kill, (rank, signal.SIGCONT))  # if no line is the one that we wait for
    goes_on.start()
    line = next(line for line in second.stdout if "waiting for the devices: " in line)
    goes_on.cancel()
    os.kill(rank, signal.SIGCONT)
    waited = re.search(r"waiting for the devices: process (\d+) measures (\S+) since 20", line)
    assert waited and waited[2] == FIRST
    said(first)
    said(second)
    before, after = (read_run(clone.path / FIRST) for clone in (quick, other))
    assert before.status == after.status == "ok"
    assert before.ended <= after.started


def test_results_that_cannot_be_written(tmp_path: Path, start: Callable[..., Popen[str]]) -> None:
    clone = copy(tmp_path / 'it\'s "read only"', SYNTHETIC.format(repeats=1, max_total_seconds=5))
    results = clone.path / "results"
    results.chmod(0o555)
    # root may write everywhere, unless it gives up that right
    before = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    needs(not before or works(*before, "true"), "setpriv")
    failed = said(start(clone, SUMMARY, before=before), status=1)
    results.chmod(0o755)
    assert "results/ cannot be written, and results belong there" in failed
    assert "correct the rights or the mount, and run the same command again" in failed
    assert "Traceback" not in failed and "samples/s" not in failed
    assert not clone.files("results/*/*")


PLANTED = """
corpus: {name: little, sequences: {32: 5}}
runs: {device: cpu, repeats: 1}
benchmarks:
  quick:
    model: bert-tiny
    sequence_length: 32
    topologies: [1n1g]
    batch: {fp32: [2, 4, 8, 16]}
    options: {data: synthetic}
    remarks: EVIL
  lone: {model: bert-tiny, sequence_length: 32, topologies: [1n2g], batch: {fp32: [4]}, options: {data: synthetic}}
"""
SHELL = "'; touch pwned; $(touch pwned) `touch pwned` \" "


class Page(HTMLParser):
    """Collect what a page would do in a browser: its tags, event handlers and text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]

    def handle_data(self, data: str) -> None:
        self.text += data


Planted = tuple[Clone, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A clone with hostile text in its configuration and in a synthetic record of every run, one of them invalid; and
    path -> record."""
    evil = HOSTILE + SHELL
    configuration = PLANTED.replace("EVIL", json.dumps(evil))
    clone = copy(tmp_path_factory.mktemp("planted") / 'it\'s "here"; $(touch pwned)', configuration)
    specs = runs.expand(config.load([clone.path / "small.yaml"], {}))
    found: dict[str, dict[str, Any]] = {}
    for spec in specs:
        value = observed(record(spec.values(), 100.0, warnings=[evil], framework={"torch": evil}))
        value["device"]["name"] = evil
        value["telemetry"][0]["devices"][0]["throttle_reasons"] = [evil]
        value["telemetry"][0]["reasons"] = {"machine.cpu_steal_share": evil}
        value["work"]["convention"]["attention"] = evil
        value["environment"]["variables"] = {"NCCL_ALGO": evil}
        if spec.batch == 16:
            value = record(spec.values(), None, status="invalid", reason=evil, device=value["device"])
        found[spec.record] = value
        (clone.path / spec.record).parent.mkdir(parents=True)
        (clone.path / spec.record).write_text(json.dumps(value))
        (clone.path / spec.log).write_text("")
    return clone, found


def test_invalid_records_are_refused_and_the_others_reported(planted: Planted) -> None:
    clone, values = planted
    for name in clone.files("results/*/*.json", "results/report*.html"):  # of another test
        (clone.path / name).unlink()
    edited, other, wrong, broken, _ = (clone.path / name for name in values)
    edited.write_text(json.dumps(values[str(edited.relative_to(clone.path))] | {"samples_per_s": 200.0}))
    other.write_text(json.dumps({"schema": 99, "speed": 100.0}))
    wrong.write_text(json.dumps(values[str(edited.relative_to(clone.path))]))
    broken.write_text(other.read_text()[:9])
    failed = clone.snakemake("results/report.html")
    assert failed.returncode == 1 and "Traceback" not in failed.stdout
    for name, what, then in (
        (edited, "does not follow from the window", "remove the file and run snakemake again"),
        (other, "has schema 99; this version of Throughline", "use that version, or a results folder of its own"),
        (wrong, "holds the record of another run", "remove the file and make it again: snakemake"),
        (broken, "is not valid JSON", "remove the file and run snakemake again"),
    ):
        path = str(name.relative_to(clone.path))
        at = failed.stdout.index(f"error: {path}")
        assert what in failed.stdout[at : at + 600] and then in failed.stdout[at : at + 600], path
    assert failed.stdout.splitlines()[-1].startswith("  next: fix what the logs say")
    assert not clone.files("results/quick/*.json", "results/report.html")
    page = Page(clone.path / "results/report-incomplete.html")
    assert "lone" in page.text and "100.0" in page.text
    assert "has schema 99" in page.text and "does not follow from the window" in page.text

    for path, value in values.items():
        (clone.path / path).write_text(json.dumps(value))
    clone.made("results/report.html")
    assert clone.files("results/report*.html") == {"results/report.html"}


def test_hostile_text_in_records_is_inert(planted: Planted) -> None:
    clone, _ = planted
    clone.made("results/report.html")
    cell = read_summary(clone.path / "results/lone/bz4_fp32.json").frameworks["torch"]["1n2g"]
    assert (cell.n_ok, cell.speedup, cell.efficiency) == (1, None, None)
    assert not list(clone.path.parent.rglob("pwned"))
    page = Page(clone.path / "results/report.html")
    assert page.tags.count("script") == 1 and "img" not in page.tags and page.handlers == []
    assert "<script>alert(1)</script>" in page.text
    texts = {name: (clone.path / name).read_text(encoding="utf-8") for name in clone.files("results/*/tables/[a-z]*.*")}
    assert {Path(name).suffix for name in texts} == {".csv", ".md", ".tex"}
    for name, text in texts.items():
        if name.endswith(".csv"):
            cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
            assert not [cell for cell in cells if re.match(r"[=@+\t\r]|-(?!\d)", cell)], name
        elif name.endswith(".tex"):
            assert r"\input{" not in text.replace(r"\textbackslash{}input", "") and " $(" not in text, name
        else:
            html = MarkdownIt("commonmark").enable("table").render(text)
            assert not re.search(r"<script|href=\"(?!\.\./bz)|<h1|<strong>b", html), name


SECRETS = {
    "HF_TOKEN": "hf_PlantedPlanted12",
    "WANDB_API_KEY": "0123456789abcdefplanted",
    "AWS_SECRET_ACCESS_KEY": "planted/with+signs0",
    "NCCL_ALGO": "hf_PlantedPlanted12",
    "MXNET_HOME": "https://ada:planted-pw@mirror.example/x",
}
HOST, USER = "gpu-17.cluster.example", "ada-lovelace"


def addresses() -> set[str]:
    """Return all addresses of this machine except loopback, as text."""
    found = set(re.findall(r"(\d+(?:\.\d+){3})\n\s+/32 host LOCAL", Path("/proc/net/fib_trie").read_text()))
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
    cards = {path.read_text().strip() for path in Path("/sys/class/net").glob("*/address")}
    return {address for address in found | cards if not re.match(r"127\.|::1$|00:00:00:00:00:00$|$", address)}


def test_outputs_name_no_machine(tmp_path: Path, start: Callable[..., Popen[str]]) -> None:
    """Make a whole job with verbose libraries, on a machine and for a user with distinctive names."""
    configuration = SYNTHETIC.format(repeats=1, max_total_seconds=3).replace(", options: {data: synthetic}", "")
    clone = copy(tmp_path / "home" / USER / "project", configuration.replace("1n1g", "1n2g"))
    home = clone.path.parent
    named = ["unshare", "--uts", "bash", "-c", 'hostname "$0" && exec "$@"', HOST]
    before = named if works(*named, "true") else []
    variables = {"HOME": str(home), "LOGNAME": USER, "USER": USER, "TORCH_CPP_LOG_LEVEL": "INFO", "LOGLEVEL": "INFO"}
    variables |= SECRETS | {"XLA_FLAGS": f"--xla_dump_to={home}/dump/{HOST}"}
    said(start(clone, before=before, **variables))
    real = {name for name in (socket.gethostname(), Path.home().name) if len(name) > 2 and name != "root"}
    secret = {HOST, HOST.split(".")[0], USER, str(home), "lanted"} | real | addresses()
    written = sorted(clone.files("results/**/*", "logs/**/*", "data/**/*.json"))
    leaks = [
        (name, word)
        for name in written
        if (clone.path / name).is_file()
        for content in [(clone.path / name).read_bytes()]
        for word in secret
        if word.encode() in content
    ]
    assert not leaks
    assert "results/report.html" in written
    variables_seen = read_run(clone.path / FIRST.replace("1n1g", "1n2g")).environment["variables"]
    assert variables_seen["NCCL_ALGO"] == "MASKED"
    if before:
        assert variables_seen["XLA_FLAGS"] == "--xla_dump_to=~/dump/node0"
