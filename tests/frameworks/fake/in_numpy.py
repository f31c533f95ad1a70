"""The pre-training that `fake` does in numpy: one number per word, which says how often the word is masked.

It learns this number without looking at the sentence. So it is not BERT, and the equivalence check says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Form
from throughline.workloads.bert import Parameters

Batch = tuple[np.ndarray, np.ndarray]


class BertForm(Form[Parameters, np.ndarray]):
    def build(self, spec: RunSpec[Parameters], facts: dict[str, Any], at: Any = None) -> np.ndarray:
        return np.zeros(facts["vocabulary"], np.float32)

    def load(self, network: np.ndarray, weights: Arrays) -> None:
        """Do nothing, because this model has no place for BERT's weights."""

    def batch(self, arrays: Arrays) -> Batch:
        """Return the masked words, and for each whether it is used."""
        return arrays["labels"].reshape(-1), (arrays["positions"] != 0).reshape(-1)

    def loss(self, scores: np.ndarray, batch: Batch) -> tuple[float, np.ndarray]:
        """Return the mean loss and its gradient."""
        labels, weights = batch
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        seen = np.bincount(labels, weights, len(shares)) / weights.sum()
        total = float((np.log(shares[labels]) * weights).sum() / weights.sum())
        return -total, (shares - seen).astype(np.float32)

    def settings(self, network: np.ndarray) -> dict[str, Any]:
        return {"parameters": len(network), "loss": "masked words"}


FORM = BertForm()
