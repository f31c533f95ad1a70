"""Measure what telemetry costs a run: its CPU-seconds in the timed window, and whether runs without it are faster.

    python benchmarks/telemetry.py                         about five minutes on two cores
    python benchmarks/telemetry.py --topology 1n1g --rounds 9

The runs take turns, each in new processes: with telemetry, without it, and with it once more (`again`), in an order
that rotates. `with` and `again` are the same thing twice, so their difference is the machine's noise. A smaller
difference counts as none. The data are synthetic. By default every core of a two-core machine trains, so the sampler
finds no idle core.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from throughline import frameworks  # noqa: E402
from throughline.launch import launcher  # noqa: E402
from throughline.launch.request import RunRequest  # noqa: E402
from throughline.study.runs import PROTOCOL  # noqa: E402

KINDS = {"with": True, "without": False, "again": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--topology", default="1n2g")
    parser.add_argument("--model", default="bert-tiny")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--seconds", type=float, default=9.0, help="seconds of training per run; a third of them is warm-up"
    )
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    given = parser.parse_args()
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    costs: list[float] = []
    for number in range(given.rounds):
        for place in range(len(KINDS)):
            kind = list(KINDS)[(number + place) % len(KINDS)]
            record = measure(given, KINDS[kind])
            speeds[kind].append(record["samples_per_s"])
            if KINDS[kind]:
                costs.append(record["telemetry"][0]["cost_cpu_share"])
        if given.json:
            given.json.write_text(json.dumps({"samples_per_s": speeds, "cost_cpu_share": costs}, indent=1) + "\n")
    show(speeds, costs)


def measure(given: argparse.Namespace, telemetry: bool) -> dict[str, Any]:
    """Make one run and return its record."""
    spec = frameworks.specification(
        {
            "benchmark": "telemetry", "framework": "torch", "model": given.model, "sequence": 32, "predictions": 5,
            "batch_per_device": given.batch, "precision": "fp32", "topology": given.topology, "repeat": 1,
            "steps": {"warmup": 10, "timed": 100_000, "at_most_s": given.seconds}, "options": {"data": "synthetic"},
            "protocol": PROTOCOL,
        }
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, spec.record)
        return launcher.run(RunRequest(spec=spec, record=place, log=place.with_suffix(".log"), telemetry=telemetry))


def show(speeds: dict[str, list[float]], costs: list[float]) -> None:
    """Print the cost, and a table of the ratios of the medians with the range over the rounds."""
    share = f"{100 * median(costs):.2f} % ({100 * min(costs):.2f} to {100 * max(costs):.2f})"
    print(f"CPU-seconds of the sampler over the window, of one core: {share}, {len(costs)} runs\n")
    print("| | samples/s, median | over `with` | range over the rounds |\n|---|--:|--:|--:|")
    middle = {kind: median(values) for kind, values in speeds.items()}
    for kind, values in speeds.items():
        ratios = [value / base for value, base in zip(values, speeds["with"], strict=True)]
        row = f"| {kind} | {middle[kind]:.1f} | {middle[kind] / middle['with']:.4f} |"
        print(row + (f" {min(ratios):.3f} to {max(ratios):.3f} |" if kind != "with" else " |"))
    cost = middle["without"] / median([*speeds["with"], *speeds["again"]]) - 1
    noise = abs(middle["again"] / middle["with"] - 1)
    print(
        f"\nWithout telemetry against all runs with it: {100 * cost:+.2f} %. The same twice: {100 * noise:.2f} %. "
        + ("No difference beyond the noise." if abs(cost) <= noise else "More than the noise of this one comparison.")
    )


if __name__ == "__main__":
    main()
