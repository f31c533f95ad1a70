"""Compare our training step on a CPU with Hugging Face's, or with that of another clone, in turn.

    python benchmarks/training_steps.py --rows bert-mini:16:bf16 gpt2-tiny:4:fp32 --cpu-seconds
    python benchmarks/training_steps.py --rows presets/llama-tiny.json:4:bf16 --cpu-seconds              a decoder
    python benchmarks/training_steps.py --rows bert-mini:16:bf16 --before ../before      is the step slower than there?
    python benchmarks/training_steps.py --rows bert-tiny:2:fp32 --rounds 1 --seconds 0.1                    to try it

All contestants (contestants.py) have the same model, weights, synthetic batches, precision and threads. `again` is our
step once more, and shows the machine's noise. A figure is the time of the other's step divided by that of ours.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import harness
from contestants import contest, specification

TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2}
"""The largest relative difference between the contestants' losses of the first batch, without dropout."""


def main() -> None:
    parser = harness.options(__doc__, rounds=15, cpu=True)
    parser.add_argument(
        "--rows",
        nargs="+",
        default=["bert-mini:16:bf16"],
        help="model:batch:precision; a decoder's model may be the path of its config.json",
    )
    parser.add_argument("--before", type=Path, help="another clone, whose step takes part")
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    others = ["hf-trainer", "hf-loop", *(["before"] if given.before else []), "again"]
    table = harness.Table("row", f"ours, {'CPU-' if given.clock == 'cpu_seconds' else ''}ms", *others)
    every = []
    for row in given.rows:
        model, batch, precision = row.rsplit(":", 2)
        sizes = {"sequence_length": 128, "predictions": 20, "image": 64, "label_smoothing": 0.0}
        ours = specification(model, int(batch), precision=precision, device="cpu", threads=given.threads, **sizes)
        asked = {label: (ours, {"clock": given.clock}) for label in ("ours", *others)}
        for label in ("hf-trainer", "hf-loop"):
            asked[label] = (replace(ours, framework=label), {"clock": given.clock})
        if given.before:
            asked["before"][1]["program"] = given.before.resolve() / "benchmarks/contestants.py"
        found = contest(asked, TOLERANCE[precision], given.rounds, given.seconds)
        for label, reason in found.refused.items():
            print(f"{row}: {label} takes no part: {reason}", file=sys.stderr, flush=True)
        if not found.rounds:
            sys.exit(f"{row}: nothing was measured")
        ratios = {label: harness.ratio(found.rounds, label, "ours") for label in others if label not in found.refused}
        table.add(
            row, f"{1000 * harness.middle(found.rounds, 'ours'):.1f}", *(ratios.get(name, "n/a") for name in others)
        )
        every.append({"row": row, "rounds": found.rounds, "ratios": ratios})
        harness.write(given.json, every)


if __name__ == "__main__":
    main()
