"""Wide & deep (Cheng et al. 2016), which predicts clicks; framework-neutral: fields, batches, FLOPs.

A sample has 26 categories and 13 numbers, as in Criteo's logs.

Each category selects a row of one deep table [V, E]. These rows and the numbers are the input of the hidden layers. Two
pairs of categories each select a row of a wide table [V, 1]. The sum of these two rows is added to the logit.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from throughline.spec import Options, Part, RunSpec, key
from throughline.workloads import LATENCY, Arrays, Figure, Values, Workload

FIELDS, NUMBERS = 26, 13
"""How many categories and numbers a sample has."""
CROSSES = ((0, 1), (2, 3))
"""The pairs of fields that select rows of the wide table."""
CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
"""How many values each field has in Criteo's data of 2014. Synthetic fields have the same shares of the vocabulary."""
EXPONENT = 1.05
"""Exponent of Zipf's law, by which synthetic values are drawn."""
BIAS, EFFECT, SLOPE = -0.3, 0.35, 0.2
"""The rule behind synthetic samples. 17 to 40 of 100 are clicks: more with a larger vocabulary."""
BINS = 1000
"""Clicks are counted for the AUC in this many steps of the predicted probability. Ties within a step count half."""


@dataclass(frozen=True)
class Parameters(Part):
    vocabulary: int = key("rows of each table", default=2_359_296, least=1000, most=2**31 - 1, stated=True, titled=True)
    embedding: int = key("numbers in a row of the deep table", default=16, least=1, stated=True, titled=True)
    hidden: int = key("number of hidden layers", default=7, least=1, stated=True, titled=True)
    width: int = key("numbers in a hidden layer", default=1024, least=1)
    table: str = key(
        "every rank has both tables (`replicated`), some columns of the deep and some rows of the wide one "
        "(`columns`), or some rows of both (`rows`)",
        default="replicated",
        choices=("replicated", "columns", "rows"),
        whole="replicated",
        stated=True,
        titled=True,
    )
    update: str = key(
        "a step updates the rows that its samples name (`lazy`), or all, as Adam is defined (`dense`)",
        default="lazy",
        choices=("lazy", "dense"),
        stated=True,
        titled=True,
    )


def cardinalities(vocabulary: int) -> list[int]:
    """Return how many values each synthetic field has. Together they fill the vocabulary."""
    whole = sum(CARDINALITIES)
    sizes = [max(2, size * vocabulary // whole) for size in CARDINALITIES]
    sizes[CARDINALITIES.index(max(CARDINALITIES))] += vocabulary - sum(sizes)
    return sizes


def drawn(draw: Any, count: int, sizes: list[int]) -> Any:
    """Draw values i8[count, fields] by Zipf's law within each field, beginning with 0: continuous ones, rounded
    down."""
    import numpy as np

    power = 1 - EXPONENT
    ends = np.power(np.asarray(sizes, np.float64) + 1, power)
    values = np.power(1 + draw.random((count, len(sizes))) * (ends - 1), 1 / power)
    return np.minimum(values.astype(np.int64), sizes) - 1


def clicked(draw: Any, values: Any, numbers: Any) -> Any:
    """Draw clicks f4[count]. Each value of each field has its own effect, and each number has a slope."""
    return (draw.random(len(values)) < probability(values, numbers)).astype("f4")


def probability(values: Any, numbers: Any) -> Any:
    """Return the probability of a click by the synthetic rule. The best possible model would predict it."""
    import numpy as np

    field = np.arange(values.shape[1], dtype=np.uint64) << np.uint64(32)
    mixed = ((values.astype(np.uint64) + field + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    effects = mixed.astype(np.float64) / 2**23 - 1
    slopes = np.where(np.arange(numbers.shape[1]) % 2, -SLOPE, SLOPE)
    return 1 / (1 + np.exp(-(BIAS + EFFECT * effects.sum(1) + numbers @ slopes)))


def bytes_per_sample(given: Parameters) -> int:
    """Return the bytes of both tables and their moments that a lazy update moves for one sample: the forward pass reads
    each row, and the update reads and writes the weight and two moments."""
    return int(FIELDS * given.embedding + len(CROSSES)) * 4 * (1 + 2 * 3)


class WideDeep(Workload[Parameters]):
    models = ("wide-deep",)
    parameters = Parameters
    libraries = {
        "torch": frozenset({"devices", "nodes", "bf16", "compile", "convergence", "own_gradient_sync", "reduce_dtype"})
    }
    no_form = {
        "mxnet": "nobody has written one; gradients of single rows (`row_sparse`) would need an exchange of their own"
    }
    by_iteration = True
    figures = (
        LATENCY,
        Figure(
            "unique_ids",
            "rows",
            "less",
            "different rows of the deep table in a rank's batch: mean of all timed batches",
            of_counts=True,
        ),
    )
    data = "clicks"
    settings = ("tables", "rows_updated")
    learns_from = 100
    held_out = {"loss": False, "auc": True}
    update_rounding = 100
    """With Adam, an update differs by up to 1.8e-2 from that of double precision."""

    def own_gradient_sync(self, spec: RunSpec[Parameters]) -> bool:
        """True unless ranks only exchange dense gradients of whole tables."""
        return spec.parameters.table != "replicated" or spec.parameters.update == "lazy"

    def folder(self, parameters: Parameters) -> str:
        """Return the folder of the one manifest for all vocabularies: the reader maps ids into the vocabulary."""
        return "clicks"

    def batch(self, rows: Arrays, options: Options) -> Arrays:
        """Return the arrays that one step needs: ids i4[B, 26], numbers f4[B, 13], labels f4[B]."""
        return {**rows, "labels": rows["labels"].astype("f4")}

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        """Return synthetic clicks: ids i4[B, 26], numbers f4[B, 13], labels f4[B]."""
        import numpy as np

        draw = np.random.Generator(np.random.Philox(key=seed))
        sizes = cardinalities(spec.parameters.vocabulary)
        values = drawn(draw, count, sizes)
        numbers = np.log1p(draw.lognormal(size=(count, NUMBERS)))
        starts = np.cumsum([0, *sizes[:-1]])
        return {
            "ids": (values + starts).astype(np.int32),
            "numbers": numbers.astype(np.float32),
            "labels": clicked(draw, values, numbers),
        }

    def counts(self, rows: Arrays) -> tuple[int, ...]:
        """Count the different ids of a batch, and the batch itself (1)."""
        import numpy as np

        ordered = np.sort(rows["ids"], axis=None)
        return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1])), 1

    def counted(self, sums: tuple[int, ...], samples: int, spec: RunSpec[Parameters]) -> dict[str, float]:
        return {"unique_ids": sums[0] / sums[1]}

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        """Return the FLOPs to train on one sample: 3 x forward, a multiply-add is 2, matrix products only."""
        given = spec.parameters
        first, width = FIELDS * given.embedding + NUMBERS, given.width
        return float(3 * 2 * (first * width + (given.hidden - 1) * width**2 + width))

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        given = spec.parameters
        whole = given.vocabulary * (given.embedding + 1) * 4 * 7
        moved = (
            f"{bytes_per_sample(given):,} bytes of the tables and their moments per sample"
            if given.update == "lazy"
            else f"{whole:,} bytes of the tables, their gradients and moments per step, over all ranks that share them"
        )
        return {
            "flops": "3 x forward, a multiply-add is 2; matrix products only: looking up a row does not count",
            "bytes": f"besides the FLOPs, training moves {moved}",
        }

    def look(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the loss, and the area under the ROC curve (AUC) from the counts of clicks and other samples by
        score."""
        clicks, others = ([sums[f"{kind}_{step}"] for step in range(BINS)] for kind in ("click", "other"))
        below = itertools.accumulate(others, initial=0.0)
        area = sum(c * (b + o / 2) for c, b, o in zip(clicks, below, others, strict=False))
        pairs = sum(clicks) * sum(others)
        return {"loss": sums["loss"] / sums["samples"], "auc": area / pairs if pairs else math.nan}


WORKLOAD = WideDeep()
