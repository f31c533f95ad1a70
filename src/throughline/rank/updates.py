"""In a numerical equivalence check: what training adds to every weight, compared with what the reference's adds.

Every library has its own names and layouts of weights, and an implementation only knows how to load the reference's
arrays. So we load three sets of arrays one after the other, and keep for each what the network then holds: the number
of each tensor as its elements, the reference's updates, and at last the weights to start from. After the training, the
network's weights are compared element by element, in the library's own layout. The numbers tell which tensor an element
belongs to, so the result has the reference's names, even where a library keeps several tensors as one. Ranks that hold
parts of weights compare their parts. Standard library, numpy and the framework only.
"""

import math
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from throughline.frameworks.rank import Rank
from throughline.messages import Update

Arrays = Mapping[str, Any]
UNKNOWN = "the weights do not hold what is loaded into them, so nobody can tell which tensor an element belongs to"


class Expected:
    """The weights that a rank starts from and the reference's updates, both as the rank's network holds them.

    They lie in temporary files, so a rank needs no memory for them while it trains.
    """

    def __init__(self, framework: Rank, weights: Arrays, updates: Arrays) -> None:
        """Load everything into the network, the weights last. `reason` says why updates cannot be compared, or None."""
        self.names = sorted(weights)
        self.reason: str | None = None
        numbers = {name: np.full(weights[name].shape, number, np.float32) for number, name in enumerate(self.names, 1)}
        try:
            self.numbers, self.updates = (_kept(framework, arrays) for arrays in (numbers, updates))
        except NotImplementedError:
            form = framework.form.__class__.__name__
            self.reason = f"{framework.spec.framework} cannot show its weights: {form} has no `snapshot`"
        framework.load(dict(weights))
        if self.reason is None:
            self.weights = _kept(framework)

    def compared(self, framework: Rank) -> list[Update]:
        """Compare the update of every tensor. Every rank has to call this, because ranks may gather their parts."""
        if self.reason:
            return []
        held, sums = np.zeros(len(self.names) + 1, bool), np.zeros((3, len(self.names) + 1))
        for name, after in framework.snapshot().items():
            numbers, update, before = (np.asarray(kept[name]) for kept in (self.numbers, self.updates, self.weights))
            whole = (numbers == np.rint(numbers)) & (numbers >= 0) & (numbers <= len(self.names))
            if not whole.all():  # 0 stands where a rank fills its part up
                self.reason = UNKNOWN
                return []
            places = numbers.astype(np.int64).ravel()
            held[places] = True
            moved = np.asarray(after, np.float64) - before
            for kind, values in enumerate((update, moved - update, before)):
                sums[kind] += np.bincount(places, np.square(values, dtype=np.float64).ravel(), len(held))
        self.reason = None if held[1:].any() else UNKNOWN
        norms = {name: of.tolist() for name, of in zip(["", *self.names], np.sqrt(sums.T), strict=True)}
        return [
            Update(name, update, difference if math.isfinite(difference) else None, weights)
            for is_here, (name, (update, difference, weights)) in zip(held, norms.items(), strict=True)
            if name and is_here
        ]


def _kept(framework: Rank, arrays: Arrays | None = None) -> Any:
    """Load arrays into the network, if any, and return what it then holds, by name. Each is read when used."""
    if arrays is not None:
        framework.load(dict(arrays))
    file = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as what reads it)
    np.savez(file, **framework.snapshot())
    file.seek(0)
    return np.load(file)
