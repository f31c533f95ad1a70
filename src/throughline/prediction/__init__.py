"""Prediction: what a topology that nobody measured would give, with an interval, from what was measured on others.

* `facts.py`: what is known (`Point`, `Job`), what is asked (`Target`), and the two answers (`Prediction`, `Refusal`).
* `refusing.py`: the questions that have no answer, and why.
* `terms.py`: the seconds of a step as a sum of terms. `fit.py`: their constants from the measured points.
* `intervals.py`: how far a prediction may be off, from published series. `warnings.py`: what else is questionable.
* `answer.py`: `predict`, which puts them together.

This package knows numbers of devices and seconds. It knows no record and no file of results.
docs/method-prediction.md has the formula and how well it did on published results.
"""

from throughline.prediction.answer import predict
from throughline.prediction.facts import Job, Point, Prediction, Refusal, Target

__all__ = ["Job", "Point", "Prediction", "Refusal", "Target", "predict"]
