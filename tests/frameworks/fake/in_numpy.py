"""The pre-training that `fake` does in numpy: one number per word, which says how often the word is masked.

It learns this number without looking at the sentence. So it is not BERT, and the equivalence check says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LACKS: dict[str, str] = {}

Batch = tuple[np.ndarray, np.ndarray]


def build(spec: dict[str, Any], facts: dict[str, Any]) -> np.ndarray:
    return np.zeros(facts["vocabulary"], np.float32)


def load(scores: np.ndarray, weights: dict[str, Any]) -> None:
    """Do nothing, because this model has no place for BERT's weights."""


def batch(arrays: dict[str, Any]) -> Batch:
    """Return the masked words, and for each whether it is used."""
    return arrays["labels"].reshape(-1), (arrays["positions"] != 0).reshape(-1)


def loss(scores: np.ndarray, batch: Batch) -> tuple[float, np.ndarray]:
    """Return the mean loss and its gradient."""
    labels, weights = batch
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    seen = np.bincount(labels, weights, len(shares)) / weights.sum()
    total = float((np.log(shares[labels]) * weights).sum() / weights.sum())
    return -total, (shares - seen).astype(np.float32)


def settings(scores: np.ndarray) -> dict[str, Any]:
    return {"parameters": len(scores), "loss": "masked words"}


def versions() -> dict[str, str | None]:
    return {}
