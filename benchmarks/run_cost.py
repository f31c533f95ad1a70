"""Show where a run spends the seconds that are neither warm-up nor timed window.

    python benchmarks/run_cost.py                                      two ranks, five rounds: about a minute
    python benchmarks/run_cost.py --topology 1n1g --rounds 1

Each run is the command that the workflow calls for a run, with synthetic data and a window of a second or two. Every
Python process writes down when it starts and when it ends. The other figures come from the run's log and record.
Seconds of a rank are those of rank 0. On a busy machine, CPU-seconds change less than seconds. The time that Snakemake
itself needs for a job is not included: see benchmarks/overhead.py.
"""

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import harness

from throughline.study.runs import PROTOCOL

NOTES = """
import atexit, json, os, sys, time
began, opened, leave = time.monotonic(), [], os._exit

def note():
    with open(os.path.join({folder!r}, f"note{{os.getpid()}}.json"), "w") as file:
        json.dump([" ".join(sys.orig_argv), began, time.monotonic(), time.process_time(), *opened], file)

def leaving(status):
    note()
    leave(status)

def hear(event, given):
    if event == "open" and not opened and str(given[0]).endswith("run1.log"):
        opened.append(time.monotonic())

os._exit = leaving
atexit.register(note)
if any(word.endswith("run_training.py") for word in sys.orig_argv):
    sys.addaudithook(hear)
"""
"""The text of a sitecustomize.py, which every Python process imports first. The launcher opens the log when all its
imports are done, so the time of that opening ends the imports."""
OWNERS = {
    "launcher": r"run_training\.py",
    "agent": r"launch\.agent",
    "ranks": r"^\S+ (-u )?\S+start\.py throughline\.rank\.worker",
}
"""Kind of process -> pattern of its command line. Every other process belongs to what starts the ranks."""


def main() -> None:
    parser = harness.options(__doc__, rounds=5)
    parser.add_argument("--topology", default="1n2g")
    parser.add_argument("--model", default="bert-tiny")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--python", default=sys.executable, help="the Python of the framework's environment")
    given = parser.parse_args()
    runs = [measure(given) for _ in range(given.rounds)]
    for place, unit in enumerate(("s", "CPU-s")):
        table = harness.Table("", f"{unit}, median of {len(runs)}", "from", "to")
        for name in runs[0][place]:
            values = [run[place].get(name, 0.0) for run in runs]
            table.add(name, *(f"{value:.2f}" for value in (median(values), min(values), max(values))))
        print()
    harness.write(given.json, runs)


def measure(given: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Make one run. Return the seconds of every stage, and the CPU-seconds of every kind of process."""
    spec = harness.specification(
        given.model, 4, framework=given.framework, topology=given.topology, device="cpu", protocol=PROTOCOL,
        steps={"warmup": 2, "timed": 100}, sequence_length=32, predictions=5,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(NOTES.format(folder=name))
        command = [sys.executable, "src/start.py", "workflow/scripts/run_training.py", "--spec", spec.canonical]
        command += ["--record", f"{name}/run1.json", "--log", f"{name}/run1.log", "--python", given.python]
        start = time.monotonic()
        harness.run(command, PYTHONPATH=name)
        end = time.monotonic()
        record = json.loads((folder / "run1.json").read_text())
        log = (folder / "run1.log").read_text().splitlines()
        notes = sorted((json.loads(note.read_text()) for note in folder.glob("note*.json")), key=lambda note: note[1])

    processes: dict[str, list[list[float]]] = {owner: [] for owner in [*OWNERS, "what starts the ranks"]}
    for words, *times in notes:
        owner = next((owner for owner, pattern in OWNERS.items() if re.search(pattern, words)), "what starts the ranks")
        processes[owner].append(times)
    cpu = {owner: sum(times[2] for times in every) for owner, every in processes.items()}
    cpu["ranks"] -= sum(rank["cpu_seconds"] for rank in record["ranks"])

    launcher, agent, first = processes["launcher"][0], processes["agent"][0], processes["ranks"][0]
    last = max(times[1] for times in processes["ranks"])
    spoken = next(line for line in log if line.startswith("[rank 0] seconds: "))
    phases = {phase: float(took) for phase, took in re.findall(r"([\w-]+) ([\d.]+)", spoken.partition(": ")[2])}
    trained = phases.pop("warm-up") + phases.pop("training")
    seconds = {
        "launcher: interpreter and imports": launcher[3] - start,
        "launcher: looks at the machine and the data": agent[0] - launcher[3],
        "agent: its own start, and that of the ranks": first[0] - agent[0],
        "rank: interpreter, our modules; its report and parting": first[1] - first[0] - trained - sum(phases.values()),
        "rank: imports the framework": phases["start"],
        "rank: joins the others": phases["join"],
        "rank: device, model, data, optimizer": sum(phases[name] for name in ("device", "model", "data", "optimizer")),
        "rank: matrix product and figures after the window": phases["end"],
        "agent: after the last rank": agent[1] - last,
        "launcher: the record, and its end": end - agent[1],
        "all but warm-up and window": end - start - trained,
        "warm-up and window": trained,
    }
    return seconds, cpu | {"all but the window": sum(cpu.values())}


if __name__ == "__main__":
    main()
