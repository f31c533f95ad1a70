"""Measure what the workflow itself costs: planning thousands of runs, and starting with nothing to do.

    python benchmarks/overhead.py                 all of it, about three minutes
    python benchmarks/overhead.py --rounds 1 --runs 100    to try it

Every figure is compared with a bare Snakefile that has the same graph (the same files, no library, no configuration).
The two take turns, and their ratio says what Throughline adds to Snakemake. Nothing is trained: the graph is only
planned.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import harness
from harness import ROOT

TOPOLOGIES, REPEATS = 10, 10

BARE = """
CELLS = [f"results/wide/bz{b}_fp32" for b in range(1, N + 1)]
TOPOLOGIES = [f"1n{d}g" for d in range(1, 11)]
RECORDS = {c: [f"{c}/torch/{t}/run{k}.json" for t in TOPOLOGIES for k in range(1, 11)] for c in CELLS}
rule all:
    input: "results/report.html", sum(RECORDS.values(), [])
rule run:
    output: "results/wide/{cell}/torch/{topology}/run{repeat}.json"
    log: "results/wide/{cell}/torch/{topology}/run{repeat}.log"
    priority: lambda w: 1000 - int(w.repeat)
    shell: "touch {output}"
rule summary:
    input: lambda w: RECORDS[f"results/wide/{w.cell}"]
    output: "results/wide/{cell}.json"
    wildcard_constraints: cell="[^/]+"
    shell: "touch {output}"
rule report:
    input: [f"{c}.json" for c in CELLS]
    output: "results/report.html"
    shell: "touch {output}"
"""


def configuration(runs: int) -> str:
    """Return a configuration of `runs` runs that read no corpus: batch sizes x 10 topologies x 10 repeats."""
    batches = list(range(1, runs // (TOPOLOGIES * REPEATS) + 1))
    topologies = [f"1n{devices}g" for devices in range(1, TOPOLOGIES + 1)]
    wide = {
        "sequence_length": 32,
        "topologies": topologies,
        "batch": {"fp32": batches},
        "options": {"data": "synthetic"},
    }
    corpus = {"sequences": {"32": 5}, "shards": {"training": 1, "test": 0}, "parts": 1}
    runs_of_all = {"repeats": REPEATS, "device": "cpu"}
    return json.dumps({"corpus": corpus, "runs": runs_of_all, "benchmarks": {"wide": wide}})


def clone(folder: Path, runs: int) -> tuple[Path, Path]:
    """Make a copy of the workflow with the grid as its configuration, and a bare Snakefile with the same graph; return
    their folders."""
    ours, bare = folder / f"ours_{runs}", folder / f"bare_{runs}"
    for name in ("rules", "src", "workflow", "envs", "profiles", "resources"):
        shutil.copytree(ROOT / name, ours / name)
    shutil.copy(ROOT / "Snakefile", ours)
    # A key in JSON is always a string. Without quotation marks, YAML reads it as a number.
    (ours / "config.yaml").write_text(configuration(runs).replace('"32":', "32:"))
    shutil.copytree(ROOT / "profiles", bare / "profiles")
    (bare / "Snakefile").write_text(BARE.replace("N + 1", f"{runs // (TOPOLOGIES * REPEATS)} + 1"))
    return ours, bare


def seconds(folder: Path, *words: str) -> float:
    """Return the wall-clock seconds of one Snakemake call."""
    return harness.snakemake(folder, *words).seconds


def compare(ours: Path, bare: Path, words: list[str], rounds: int) -> list[dict[str, float]]:
    """Return the wall-clock seconds of one Snakemake call in both folders, in turn."""
    ways = {"throughline": ours, "bare": bare}
    return harness.in_turn({name: partial(seconds, folder, *words) for name, folder in ways.items()}, rounds)


def main() -> None:
    parser = harness.options(__doc__, rounds=5)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10000], help="sizes of the graphs, in hundreds")
    given = parser.parse_args()
    table = harness.Table("what", "throughline, s", "bare Snakefile, s", "ratio")
    every: dict[str, Any] = {}

    def measure(what: str, ours: Path, bare: Path, *words: str) -> None:
        rounds = every[what] = compare(ours, bare, [*words], given.rounds)
        medians = [f"{harness.middle(rounds, name):.2f}" for name in ("throughline", "bare")]
        table.add(what, *medians, harness.ratio(rounds, "throughline", "bare"))
        harness.write(given.json, every)

    plan = ("--dry-run", "--quiet", "all")
    with tempfile.TemporaryDirectory() as folder:
        for runs in given.runs:
            ours, bare = clone(Path(folder), runs)
            measure(f"dry run of {runs:,} runs", ours, bare, *plan)
        measure(f"one target of {runs:,} runs", ours, bare, *plan, "--", "results/wide/bz1_fp32/torch/1n3g/run5.json")
        least = min(given.runs)
        ours, bare = clone(Path(folder) / "done", least)
        for each in (ours, bare):
            _pretend(each)
        measure(f"{least:,} runs, nothing to do", ours, bare, "--quiet", "all")


def _pretend(folder: Path) -> None:
    """Mark every file of the graph as made."""
    for row in harness.snakemake(folder, "--summary").output.splitlines()[1:]:
        if "\t" not in row:  # a message
            continue
        path = folder / row.split("\t")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.touch()
        else:
            path.mkdir(exist_ok=True)
    harness.snakemake(folder, "--touch", "--quiet", "all")


if __name__ == "__main__":
    main()
