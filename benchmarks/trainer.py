"""Compare our training step with Hugging Face's Trainer and a plain loop with transformers' own model, on CPUs.

    python benchmarks/trainer.py                          all rows, about half an hour on two cores
    python benchmarks/trainer.py --rows bert-mini:16:bf16 --rounds 7

Model, weights, batches, precision, optimizer and threads are the same. Each contestant is a separate process, and they
make their steps in turn (contest.py). A figure is the time of the other's step divided by the time of our step: the
median over the rounds, with its interval (contest.ratio). `ours again` is our step once more: it shows the machine's
noise. On a machine that has other work, `--threads 1 --cpu-seconds` tells more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from contest import Case, Contestant, Failed, ratio, take_turns  # noqa: E402

TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2}
"""Largest relative difference between the contestants' losses of the first batch, without dropout."""
ROWS = ["bert-mini:16:bf16", "bert-mini:16:fp32", "bert-tiny:32:bf16", "bert-base:4:bf16", "bert-base:4:fp32"]
ROWS += [
    f"gpt2-{size}:{batch}:{precision}" for size in ("tiny", "mini") for batch in (4, 16) for precision in TOLERANCE
]
ROWS += [f"resnet50:{batch}:{precision}" for batch in (8, 32) for precision in TOLERANCE]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=ROWS, help="model:batch:precision")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)
    parser.add_argument("--image", type=int, default=64)
    parser.add_argument("--cpu-seconds", action="store_true", help="count CPU-seconds instead of wall-clock seconds")
    parser.add_argument("--json", type=Path, help="also write every round to this file")
    given = parser.parse_args()
    every = []
    print("| row | ours, ms a step | trainer | plain loop | ours again |\n|---|--:|--:|--:|--:|", flush=True)
    for row in given.rows:
        model, batch, precision = row.split(":")
        sizes = {name: getattr(given, name) for name in ("sequence", "predictions", "image", "threads")}
        case = Case(model, int(batch), precision, "cpu", **sizes)
        rounds, losses = contest(case, given.rounds, given.seconds, "cpu_seconds" if given.cpu_seconds else "seconds")
        ours = median(one["ours"] for one in rounds)
        found = {label: ratio(rounds, label, "ours") for label in ("trainer", "plain", "ours again")}
        cells = [f"{one['median']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in found.values()]
        print(f"| {model}, batch {batch}, {precision} | {1000 * ours:.0f} | {' | '.join(cells)} |", flush=True)
        every.append({"row": row, "rounds": rounds, "ratios": found, "loss": losses})
        if given.json:
            given.json.write_text(json.dumps(every, indent=1) + "\n")
    return 0


def contest(case: Case, rounds: int, seconds: float, clock: str) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Return the seconds of a step per round and contestant, and the losses. The losses must agree; otherwise the
    contestants do not do the same work, and the script ends."""
    with tempfile.TemporaryDirectory() as folder:
        turn = Path(folder, "turn")
        labels = {"ours": "ours", "trainer": "trainer", "plain": "plain", "ours again": "ours"}
        every = [Contestant(name, case, turn, label=label) for label, name in labels.items()]
        for one in every:
            one.clock = clock
        try:
            losses = {one.label: float(one.ready()["loss"]) for one in every}
            for label, loss in losses.items():
                if abs(loss / losses["plain"] - 1) > TOLERANCE[case.precision]:
                    raise SystemExit(f"{label} computes another loss than the plain loop: {losses}")
            return take_turns(every, rounds, seconds), losses
        except Failed as error:
            raise SystemExit(f"{case}: {error}") from None
        finally:
            for one in every:
                one.close()


if __name__ == "__main__":
    sys.exit(main())
