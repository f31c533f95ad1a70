"""Measure what telemetry costs a run: its CPU-seconds in the timed window, and whether runs without it are faster.

    python benchmarks/telemetry.py                         about five minutes on two cores
    python benchmarks/telemetry.py --topology 1n1g --rounds 1 --seconds 4         to try it

The runs take turns, each in new processes: with telemetry, without it, and with it once more (`again`), in an order
that rotates. `with` and `again` are the same thing twice, so their difference is the machine's noise. A smaller
difference counts as none. The data are synthetic. By default every core of a two-core machine trains, so the sampler
finds no idle core.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import harness

from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.study.runs import PROTOCOL

KINDS = {"with": True, "without": False, "again": True}


def main() -> None:
    parser = harness.options(__doc__, rounds=7)
    parser.add_argument("--topology", default="1n2g")
    parser.add_argument("--model", default="bert-tiny")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--seconds", type=float, default=9.0, help="seconds of training per run; a third of them is warm-up"
    )
    given = parser.parse_args()
    records = harness.in_turn({kind: partial(measure, given, on) for kind, on in KINDS.items()}, given.rounds)
    rounds = [{kind: record["samples_per_s"] for kind, record in each.items()} for each in records]
    costs = [each[kind]["telemetry"][0]["cost_cpu_share"] for each in records for kind, on in KINDS.items() if on]
    harness.write(given.json, {"samples_per_s": rounds, "cost_cpu_share": costs})
    show(rounds, costs)


def measure(given: Any, telemetry: bool) -> dict[str, Any]:
    """Make one run and return its record."""
    steps = {"warmup": 10, "timed": 100_000, "max_total_seconds": given.seconds}
    sizes = {"topology": given.topology, "sequence_length": 32, "predictions": 5}
    spec = harness.specification(given.model, given.batch, steps=steps, protocol=PROTOCOL, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, spec.record)
        return launcher.run(RunRequest(spec=spec, record=record, log=record.with_suffix(".log"), telemetry=telemetry))


def show(rounds: list[dict[str, float]], costs: list[float]) -> None:
    """Print the cost, and a table of the ratios."""
    share = f"{100 * median(costs):.2f} % ({100 * min(costs):.2f} to {100 * max(costs):.2f})"
    print(f"CPU-seconds of the sampler over the window, of one core: {share}, {len(costs)} runs\n")
    table = harness.Table("", "samples/s, median", "over `with`")
    for kind in KINDS:
        table.add(kind, f"{harness.middle(rounds, kind):.1f}", harness.ratio(rounds, kind, "with"))
    every = [each[kind] for each in rounds for kind, on in KINDS.items() if on]
    cost = harness.middle(rounds, "without") / median(every) - 1
    noise = abs(harness.middle(rounds, "again") / harness.middle(rounds, "with") - 1)
    print(
        f"\nWithout telemetry against all runs with it: {100 * cost:+.2f} %. The same twice: {100 * noise:.2f} %. "
        + ("No difference beyond the noise." if abs(cost) <= noise else "More than the noise of this one comparison.")
    )


if __name__ == "__main__":
    main()
