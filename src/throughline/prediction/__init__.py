"""Prediction: what a topology that nobody measured would give, with an interval, from what was measured on others.

`step.py` has the seconds of a step as a sum of terms, and fits their constants to the measured points. `answer.py`
predicts a topology, says how far the prediction may be off and what else is questionable, or why there is none.
docs/explanation/method-prediction.md has the formula, and how well it did on published results.
"""

from throughline.prediction.answer import FAR, LEVEL, predict
from throughline.prediction.step import Job, Place

__all__ = ["FAR", "LEVEL", "Job", "Place", "predict"]
