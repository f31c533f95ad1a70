"""What all benchmarks share: options, rounds in turn, ratios with their range, clocks, tables, and files of results.

A benchmark measures several programs, which we call its ways, in rounds. In each round every way has its turn, and the
order rotates, so a slow minute hits all of them alike. A ratio is that of two ways in the same round.

    given = harness.options(__doc__, rounds=5).parse_args()
    rounds = harness.in_turn({"ours": ours, "theirs": theirs}, given.rounds)
    table = harness.Table("way", "seconds", "over ours")
    table.add("theirs", harness.middle(rounds, "theirs"), harness.ratio(rounds, "theirs", "ours"))
    harness.write(given.json, rounds)

This file imports the standard library only at its top, because some benchmarks run in a framework's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from math import comb
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

if TYPE_CHECKING:
    from throughline.spec import RunSpec

CLOCKS: dict[str, Callable[[], float]] = {"seconds": time.perf_counter, "cpu_seconds": time.process_time}
"""Wall-clock seconds, and the processor's seconds of all threads of this process."""
BUSY = 0.3
"""The load above which we say that the machine is not idle."""
T = TypeVar("T")
Round = Mapping[str, float]
"""Way -> what was measured in its turn."""


def options(doc: str | None, rounds: int | None = None, cpu: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the options that benchmarks share: `--rounds`, `--json`, and with `cpu` `--cpu-seconds`.

    Reading the options warns if the machine is not idle.
    """
    parser = Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds in turn (default: {rounds})")
        parser.add_argument("--json", type=Path, help="also write every round to this file")
    if cpu:
        parser.add_argument(
            "--cpu-seconds", action="store_const", dest="clock", const="cpu_seconds", default="seconds",
            help="count the processor's seconds, which other work on the machine disturbs less",
        )  # fmt: skip
    return parser


class Parser(argparse.ArgumentParser):
    def parse_args(self, *given: Any, **named: Any) -> Any:
        asked = super().parse_args(*given, **named)
        load = os.getloadavg()[0]
        if load > BUSY and not getattr(asked, "child", None):
            advice = "read the ratios, not the seconds"
            print(f"this machine is not idle (load {load:.1f}): {advice}", file=sys.stderr, flush=True)
        return asked


def rotated(ways: Sequence[T], number: int) -> list[T]:
    """Return the ways in the order of this round."""
    first = number % len(ways)
    return [*ways[first:], *ways[:first]]


def in_turn(ways: Mapping[str, Callable[[], T]], rounds: int) -> list[dict[str, T]]:
    """Call every way once in each round. Return for each round what the ways returned."""
    return [{name: ways[name]() for name in rotated(list(ways), number)} for number in range(rounds)]


def timed(work: Callable[[], Any], clock: str = "cpu_seconds") -> float:
    """Return the seconds of one call."""
    start = CLOCKS[clock]()
    work()
    return CLOCKS[clock]() - start


def middle(rounds: Sequence[Round], way: str) -> float:
    return median(each[way] for each in rounds)


@dataclass(frozen=True)
class Ratio:
    """The median of a ratio over rounds, and the range of the rounds that contains the true median with 95 %."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(rounds: Sequence[Round], above: str, below: str) -> Ratio:
    """Return what was measured of one way divided by what was measured of another, of the same rounds.

    The true median lies between the rounds `low` and `high` with a probability of 95 % or more, whatever the
    distribution. Of 7 rounds these are the lowest and the highest, of 15 the fourth from either end. With fewer than 6
    rounds they are the whole range.
    """
    each = sorted(values[above] / values[below] for values in rounds)
    count = len(each)
    outside, cut = 0.0, -1
    while outside <= 0.05:
        cut += 1
        outside += 2 * comb(count, cut) / 2**count
    cut = max(0, cut - 1)
    return Ratio(median(each), each[cut], each[count - 1 - cut])


def line(*cells: Any) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*names: Any, left: int = 1) -> list[str]:
    """Return the first two lines of a Markdown table. The first `left` columns are text, the others are numbers."""
    return [line(*names), "|---" * left + "|--:" * (len(names) - left) + "|"]


class Table:
    """A Markdown table that is printed row by row."""

    def __init__(self, *names: Any, left: int = 1) -> None:
        print(*head(*names, left=left), sep="\n", flush=True)

    def add(self, *cells: Any) -> None:
        print(line(*cells), flush=True)


def write(path: Path | None, value: Any) -> None:
    """Write the results as JSON if a file was asked for."""
    if path:
        path.write_text(json.dumps(value, indent=1, default=_plain) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


class Spent(NamedTuple):
    """What a command used, with all that it started."""

    cpu_seconds: float
    seconds: float
    memory_mb: float
    """The largest resident memory of a process."""
    output: str


def run(command: Sequence[object], folder: Path = ROOT, **variables: str) -> Spent:
    """Run a command. The benchmark ends if the command fails."""
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            [*map(str, command)], cwd=folder, env=os.environ | variables, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        output = said.read()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{output[-3000:]}")
    return Spent(usage.ru_utime + usage.ru_stime, seconds, usage.ru_maxrss / 1024, output)


def snakemake(folder: Path, *words: object) -> Spent:
    """Run Snakemake in a folder, without Throughline's console."""
    return run([sys.executable, "-m", "snakemake", *words], folder, THROUGHLINE_CONSOLE="snakemake")


def script(name: str, *arguments: object, **given: object) -> Spent:
    """Run one of the workflow's scripts (workflow/scripts/), with these arguments and options."""
    return _program(name, ROOT / f"workflow/scripts/{name}.py", *arguments, **given)


def step(name: str, **given: object) -> Spent:
    """Run a step that makes data, such as `corpus.shard`, with these options."""
    return _program(name, "throughline.command", name, **given)


def _program(name: str, *words: object, **given: object) -> Spent:
    for option, value in given.items():
        words += (f"--{option.replace('_', '-')}", *(value if isinstance(value, list) else [value]))
    spent = run([sys.executable, ROOT / "src/start.py", *words])
    print(f"{name}: {spent.cpu_seconds:.2f} CPU-s, {spent.memory_mb:.0f} MB", file=sys.stderr, flush=True)
    return spent


def specification(model: str, batch: int, **given: Any) -> RunSpec:
    """Return the specification of a run on synthetic data: what is not given has the default of a configuration.

    A parameter that the model does not have is left out, so one call suits several models. A model whose name ends with
    `.json` is a decoder, and the name is the path of its config.json.
    """
    from dataclasses import fields

    from throughline import frameworks, workloads
    from throughline.spec import RunSpec, values

    usual = {"benchmark": "benchmark", "framework": "torch", "precision": "fp32", "topology": "1n1g", "repeat": 1}
    model, described = _described(model) if model.endswith(".json") else (model, {})
    usual |= {"protocol": 0, **values(workloads.of(model).parameters(**described))}
    known = {*(each.name for each in fields(RunSpec)), *usual}
    rest = {name: value for name, value in given.items() if name in known}
    rest["options"] = {"data": "synthetic", **rest.get("options", {})}
    return frameworks.specification({**usual, "model": model, "batch": batch, **rest})


def _described(path: str) -> tuple[str, dict[str, str]]:
    """Return the name and the parameters of the decoder of a config.json, which this process and its children find."""
    from throughline import handover
    from throughline.workloads.hugging_face import configuration

    made = configuration.of_map({configuration.KEY: path, "task": "clm"})
    handover.add(models=handover.get("models", {}) | {made.sha256: str(Path(path).resolve())})
    return str(made), {"task": made.task, "config_sha256": made.sha256}
