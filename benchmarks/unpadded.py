"""Compare steps that compute the padding of real text with steps that leave it out (`options.unpadded`), in turn.

    python benchmarks/unpadded.py data/sample/seq128/manifest.json data/sample/seq512/manifest.json

Each is a separate process that reads the shards (contest.py). A figure is the time of the step with padding divided by
the time of the other: above 1 it pays to leave the padding out. `again` is the step with padding once more: it shows
the machine's noise.
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

from contest import Case, Contestant, ratio, take_turns  # noqa: E402
from gpu import real_token_share  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", nargs="+", type=Path)
    parser.add_argument(
        "--rows", nargs="+", default=["bert-mini:16:bf16", "bert-mini:16:fp32"], help="model:batch:precision"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cpu-seconds", action="store_true", help="count CPU-seconds instead of wall-clock seconds")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    print(
        "| row | tokens | real | unpadded, ms a step | padded / unpadded | padded / again |\n|---|--:|--:|--:|--:|--:|"
    )
    for manifest in given.manifests:
        content, share = json.loads(manifest.read_text()), real_token_share(manifest)
        length, predictions, vocabulary = content["sequence"], content["predictions"], content["vocabulary"]["size"]
        for row in given.rows:
            model, batch, precision = row.split(":")
            case = Case(
                model, int(batch), precision, given.device, length, predictions, given.threads, vocabulary,
                str(manifest.resolve()),
            )  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                turn = Path(folder, "turn")
                every = [Contestant("ours", case, turn, label=label) for label in ("padded", "again")]
                packed = Case(**{**vars(case), "options": {"unpadded": True}})
                every.append(Contestant("ours", packed, turn, label="unpadded"))
                try:
                    for one in every:
                        one.clock = "cpu_seconds" if given.cpu_seconds else "seconds"
                        one.ready()
                    rounds = take_turns(every, given.rounds, given.seconds)
                finally:
                    for one in every:
                        one.close()
            step = 1000 * median(one["unpadded"] for one in rounds)
            found = [ratio(rounds, "padded", label) for label in ("unpadded", "again")]
            cells = [f"{one['median']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in found]
            name = f"{model}, batch {batch}, {precision}"
            print(f"| {name} | {length} | {share:.1%} | {step:.0f} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
