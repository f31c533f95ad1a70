"""How far a prediction may be off: what the model missed on published series, and the noise of the repeats.

The first part is a conformal interval (Vovk 2005; Lei 2018). On published series we know the answer, so each of their
predictions has a score: its error over the `unit` of its question. A new prediction gets the width that so large a
share of the scores stays below. A unit is larger where the two forms of the exchange disagree, and grows with every
doubling beyond what was measured. `resources/prediction.json` has the scores; benchmarks/prediction.py makes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from throughline.files import resource
from throughline.prediction.facts import Job, Point, Target
from throughline.prediction.terms import Place, doublings

FILE = resource("prediction.json")
Kind = Literal["inside", "between", "strong"]
"""What a prediction crosses: nothing but more devices of one node; more nodes, where several were measured; other sizes
of the micro-batch too, as with strong scaling."""
KINDS: tuple[Kind, ...] = get_args(Kind)
NOISE = 0.02
"""The error of each doubling where both forms agree, as a logarithm. Only its proportion to their disagreement matters:
the scores take care of the rest."""


@dataclass(frozen=True)
class Calibration:
    """Scores of predictions of published series, by kind, sorted."""

    scores: Mapping[Kind, Sequence[float]]

    def quantile(self, kind: Kind, level: float) -> float:
        """Return the score that a new one stays below with probability `level`; with too few, the largest one.

        Of n scores it is the one with the number (n + 1) x level, rounded up.
        """
        scores = self.scores[kind]
        return scores[min(math.ceil((len(scores) + 1) * level), len(scores)) - 1]


@cache
def published() -> Calibration:
    """Return the calibration on all published series."""
    return Calibration(json.loads(FILE.read_text(encoding="utf-8"))["scores"])


def kind_of(points: Sequence[Point], target: Target, job: Job) -> Kind:
    places = [*(Place.of(point, job) for point in points), Place.of(target, job)]
    if len({round(place.samples, 6) for place in places}) > 1:
        return "strong"
    return "inside" if target.nodes == 1 else "between"


def unit(points: Sequence[Point], target: Target, job: Job, forms: Sequence[float]) -> float:
    """Return the unit of a prediction's error, as a logarithm. forms: the step by each form of the exchange.

    Steps count as far beyond as doublings of the devices and halvings (or doublings) of the micro-batch together. On
    one node both forms are one, so there the step's growth over the measured points says how much is unsure.
    """
    least, most = (pick(points, key=lambda point: point.world) for pick in (min, max))
    size = Place.of(target, job).samples
    sizes = max(abs(doublings(size, Place.of(point, job).samples)) for point in points)
    unsure = abs(math.log(forms[0] / forms[1]))
    if kind_of(points, target, job) == "inside":
        unsure = max(0.0, math.log(most.middle_s / least.middle_s))
    return NOISE * max(1.0, doublings(target.world, most.world) + sizes) + unsure / 2
