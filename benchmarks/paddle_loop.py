"""Compare our training step in Paddle with a plain loop of paddle.nn, as Paddle's users write one: BERT on a CPU, fp32.

    ~/.cache/throughline/environments/paddle-*/bin/python benchmarks/paddle_loop.py
    ... --model bert-mini --batch 16 --sequence 128 --rounds 9

Both train the same model on the same batch, in turn, in one process with one thread. The script prints the processor
seconds of a step (the median over the rounds) and their ratio: above 1 ours is faster. The plain model is
paddle.nn.TransformerEncoder between embeddings and the two heads, which only look at the masked positions.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import paddle
import paddle.nn.functional as F
from paddle import nn

from throughline import frameworks, workloads
from throughline.frameworks.rank import load
from throughline.workloads.bert import POSITIONS, SHAPES, VOCABULARY, padded

STEPS = 3
"""Steps of a round."""


class Plain(nn.Layer):
    """BERT made of paddle.nn's own layers."""

    def __init__(self, model: str) -> None:
        super().__init__()
        shape = SHAPES[model]
        hidden = shape.hidden
        self.words, self.places = nn.Embedding(padded(VOCABULARY), hidden), nn.Embedding(POSITIONS, hidden)
        self.kinds, self.norm = nn.Embedding(2, hidden), nn.LayerNorm(hidden, 1e-12)
        layer = nn.TransformerEncoderLayer(
            hidden, shape.heads, shape.feed_forward, 0.1, "gelu", layer_norm_eps=1e-12, normalize_before=False
        )
        self.encoder = nn.TransformerEncoder(layer, shape.layers)
        self.pooler, self.transform = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.head_norm, self.following = nn.LayerNorm(hidden, 1e-12), nn.Linear(hidden, 2)
        self.bias = self.create_parameter([padded(VOCABULARY)], is_bias=True)

    def forward(self, input_ids: Any, segments: Any, positions: Any, labels: Any, following: Any, mask: Any) -> Any:
        count, length = input_ids.shape
        hidden = self.words(input_ids) + self.places(paddle.arange(length)) + self.kinds(segments.astype("int64"))
        unseen = (1 - mask.astype("float32")).unsqueeze([1, 2]) * -1e4
        hidden = self.encoder(F.dropout(self.norm(hidden), 0.1), unseen)
        order = self.following(F.tanh(self.pooler(hidden[:, 0])))
        places = (positions + paddle.arange(count, dtype="int32").unsqueeze(1) * length).flatten()
        chosen = self.head_norm(F.gelu(self.transform(paddle.gather(hidden.flatten(0, 1), places))))
        scores = paddle.matmul(chosen, self.words.weight, transpose_y=True) + self.bias
        return F.cross_entropy(scores, labels.flatten()) + F.cross_entropy(order, following.astype("int64"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert-tiny", choices=SHAPES)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    spec = frameworks.specification({
        "benchmark": "loop", "framework": "paddle", "model": asked.model, "sequence": asked.sequence,
        "predictions": 20, "batch_per_device": asked.batch, "precision": "fp32", "topology": "1n1g", "repeat": 1,
        "seed": 1, "protocol": 0,
    })  # fmt: skip
    workload = workloads.of(asked.model)
    batch = workload.synthetic(asked.batch, spec, 1)
    batch["mask"] = (batch["input_ids"] >= 0).astype("int8")

    ours = load("paddle")(spec, 0, 0, 1, "cpu")
    ours.join()
    ours.device()
    ours.model(workload.facts(None))
    ours.optimizer()
    ready = ours.deliver(ours.data(batch))

    network = Plain(asked.model)
    update = paddle.optimizer.AdamW(1e-4, parameters=network.parameters(), weight_decay=0.01)

    def plain() -> None:
        network(**ready).backward()
        update.step()
        update.clear_grad()

    kinds = {"plain": plain, "ours": lambda: ours.step([ready])}
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(asked.rounds + 1):
        for name, step in kinds.items():
            began = time.process_time()
            for _ in range(STEPS):
                step()
            if turn:  # the first round warms up
                took[name].append((time.process_time() - began) / STEPS)
    found = {name: median(seconds) for name, seconds in took.items()}
    each = [one / other for one, other in zip(took["plain"], took["ours"], strict=True)]
    print(f"{asked.model} batch {asked.batch} x {asked.sequence}: ", end="")
    print(", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in found.items()), end="")
    print(f"; ratio {median(each):.2f} ({min(each):.2f} to {max(each):.2f})")


if __name__ == "__main__":
    main()
