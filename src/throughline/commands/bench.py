"""Measure training programs of your own: throughline bench --timing KIND --per-step N -- python train.py ...

Two or more commands, each in quotes, are measured in turn, and the last lines say which is faster. It writes
results/NAME/config.yaml and starts the workflow with it, so that the same words again only make what is missing.

commands: the words of one command after --, or several commands, each in quotes; {batch}, {steps} ... are filled in
timing: marks, a kind of log, or a pattern with the groups step and s, ms, us, interval_s, steps_per_s, per_s or clock
per_step: the units that all devices train in a step, such as 512 or '{batch} * {world}' (default: 1 step)
unit: what is counted, such as tokens
name: the name of the benchmark
repeats: how often each command runs
warmup_steps: steps before the clock starts
steps: timed steps (default: 100, and at least 5 s of them, on GPUs 30 s)
max_seconds: the longest that warm-up and timed steps take together
setup: a command that a shell runs once, before the first run
prepare: a command that a shell runs before each run
topology: nodes and devices of each, such as 1n8g; several give a speedup curve (default: 1n1g)
batch: what {batch} becomes
precision: fp32, tf32, bf16, fp16 or fp8
start: where the command starts: once on every node, once (job), or once for every device (rank)
variables: environment variables of the commands, NAME=VALUE
python: the Python whose packages the record lists
export_json: copy the summary to this file
export_csv: copy the table to this file
export_markdown: copy the table to this file
timeout: the most seconds that a run may take
silent_for: the most seconds without a step (default: 600)
dry_run: print what would be done
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal


def main(
    *commands: str,
    timing: str = "marks",
    per_step: str = "1",
    unit: str | None = None,
    name: str = "bench",
    repeats: int = 5,
    warmup_steps: int = 20,
    steps: int | None = None,
    max_seconds: float | None = None,
    setup: str | None = None,
    prepare: str | None = None,
    topology: Sequence[str] = (),
    batch: int | None = None,
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8"] | None = None,
    start: Literal["node", "job", "rank"] = "node",
    variables: Sequence[str] = (),
    python: str | None = None,
    export_json: Path | None = None,
    export_csv: Path | None = None,
    export_markdown: Path | None = None,
    timeout: float | None = None,
    silent_for: float | None = None,
    dry_run: bool = False,
) -> int:
    from throughline import bench

    program = {
        "timing": {"pattern": timing} if "(?P<" in timing else timing,
        "per_step": int(per_step) if per_step.isdigit() else per_step,
        "unit": unit or ("steps" if per_step == "1" else "samples"),
        "start": start,
        "folder": str(Path.cwd()),
        "python": python,
        "variables": bench.variables(variables),
        "prepare": ["bash", "-c", prepare] if prepare else None,
        "timeout": timeout,
        "silent_for": silent_for,
    }
    block = {
        "repeats": repeats,
        "topologies": list(topology) or ["1n1g"],
        "batch": {precision or "program": [batch or "program"]},
        "steps": {"warmup": warmup_steps, "timed": steps, "max_total_seconds": max_seconds},
    }
    asked = bench.Bench(name, bench.programs(commands, program), block)
    exports = {".json": export_json, "tables/throughput.csv": export_csv, "tables/throughput.md": export_markdown}
    return asked.run(setup, {made: path for made, path in exports.items() if path}, dry_run)
