"""What a card is expected to reach in the rows of gpu.py, and what to look at where it falls short.

All figures are estimates, in samples/s, of a compiled step. Those of an H100 come from the sizes of a step's matrix
products and of its passes over memory, those of an H200 from a roofline.
docs/reference/performance.md has what an H200 reached in three of these rows. `known` is the best figure that
somebody published for the card. A card that is not here has no expectation: we never guess one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from throughline import gpus

SLOWER = 1.2
"""A part of the step that takes so many times what is expected is named."""


@dataclass(frozen=True)
class Expected:
    """low, high: the range that the present step should reach; goal: what the hardware could do with PyTorch.

    parts_ms: the milliseconds of a step by kind of kernel (contestants.KINDS), if they are known.
    """

    low: float
    high: float | None = None
    goal: float | None = None
    known: float | None = None
    source: str = ""
    parts_ms: tuple[tuple[str, float], ...] = ()


Rows = dict[tuple[str, int, str], Expected]
LLM_C, LAMBDA = "llm.c, 468,000 tokens/s", "Lambda's table"
BERT_PARTS = (("matrix products", 28.0), ("passes", 12.0), ("attention", 5.0))
H100: Rows = {
    ("bert-base", 256, "bf16"): Expected(4800, 5500, 6000, parts_ms=BERT_PARTS),
    ("gpt2-small", 32, "bf16"): Expected(361, 420, 469, 457, LLM_C),
    ("resnet50", 256, "bf16"): Expected(2700, 3300, 4000, 2790, LAMBDA),
}
H200: Rows = {
    ("bert-base", 256, "bf16"): Expected(5700, 6500, 7070),
    ("bert-base", 32, "bf16"): Expected(4300, 5400, 6000),
    ("bert-large", 256, "bf16"): Expected(1720, 1970, 2140),
    ("bert-base", 256, "tf32"): Expected(2700, 3200),
    ("bert-base", 256, "fp32"): Expected(600, 700),
    ("gpt2-small", 32, "bf16"): Expected(457, 508, 508),
    ("gpt2-small", 64, "bf16"): Expected(457, 508, 508),
    ("gpt2-small", 16, "bf16"): Expected(457, 508, 508),
    ("resnet50", 256, "bf16"): Expected(3079, 4500, 4500),
}
CARDS: dict[str, Rows] = {"H100 SXM5": H100, "H200 SXM": H200}
"""The rows of each card, by its name in resources/gpus.csv. An H100 as a card (PCIe, NVL) is slower and not here."""

LOOK_AT = {
    "attention": "which kernel computes attention (`settings.attention` of a record)",
    "matrix products": "clocks and power (`nvidia-smi -q -d CLOCK,POWER,PERFORMANCE`), and the fastest products above",
    "optimizer": "whether the optimizer is fused: it should be a few kernels",
    "copies": "copies within the step: inputs that are not pinned, casts of whole weights",
    "passes": "what the compiler leaves apart: breaks of the graph (`TORCH_LOGS=graph_breaks`), casts, dropout",
    "idle": "the launch of kernels: how fast `recorded` is, the host's cores, the loader",
}
"""What to look at if a kind of kernel takes too long."""


def of(card: str | None, model: str, batch: int, precision: str) -> Expected | None:
    """Return what this card should reach in this row; None if nobody has estimated it."""
    gpu = gpus.find(card) if card else None
    return CARDS.get(gpu.name, {}).get((model, batch, precision)) if gpu else None


def judged(expected: Expected | None, samples_per_s: float, kernels: dict[str, float] | None) -> dict[str, Any]:
    """Return the expectation, the verdict in words, and what to look at."""
    if expected is None:
        return {"expected": None, "verdict": "no expectation for this card and row", "look_at": []}
    if samples_per_s >= expected.low:
        above = expected.high is not None and samples_per_s > expected.high
        return {"expected": asdict(expected), "verdict": "above" if above else "as expected", "look_at": []}
    short = f"{1 - samples_per_s / expected.low:.0%} below"
    return {"expected": asdict(expected), "verdict": short, "look_at": _slow(expected, kernels or {})}


def _slow(expected: Expected, kernels: dict[str, float]) -> list[str]:
    """Return what to look at: the kinds of kernels that take longer than expected, or those that take longest."""
    wall = kernels.get("wall", 0.0)
    parts = {kind: seconds for kind, seconds in kernels.items() if kind != "wall"}
    if wall:
        parts["idle"] = max(0.0, wall - sum(parts.values()))
    planned = dict(expected.parts_ms)
    slow = [kind for kind, ms in planned.items() if 1000 * parts.get(kind, 0.0) > SLOWER * ms]
    slow += [kind for kind in ("idle", "copies", "optimizer") if wall and parts.get(kind, 0.0) > 0.1 * wall]
    if not slow and parts and not planned:
        slow = sorted(parts, key=lambda kind: -parts[kind])[:2]
    return [f"{kind} ({1000 * parts[kind]:.1f} ms): {LOOK_AT[kind]}" for kind in slow if kind in LOOK_AT]
