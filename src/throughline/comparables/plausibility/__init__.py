"""Rules that find training speeds that cannot be true or are implausible, whoever measured them.

A rule knows neither sources nor single rows. The printed digits of a figure decide how exactly it is checked. Each
doubt says how it was derived, so that a reader can repeat it by hand.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from throughline.comparables import published
from throughline.comparables.measured import Measured, results
from throughline.comparables.plausibility import arithmetic, limits, repeats, speedups
from throughline.comparables.plausibility.rows import Doubt, Rows

__all__ = ["Doubt", "about_measured", "about_published", "doubts"]

RULES: tuple[Callable[[Rows], Iterable[Doubt]], ...] = (
    *speedups.RULES,
    *arithmetic.RULES,
    limits.datasheet,
    limits.products,
    *repeats.RULES,
)
"""All rules, in the order of their doubts."""


def doubts(rows: Rows) -> list[Doubt]:
    """Return every doubt about these rows, rule by rule."""
    return [doubt for rule in RULES for doubt in rule(rows)]


@cache
def about_published() -> tuple[Doubt, ...]:
    """Return the doubts about the published rows that ship with Throughline."""
    return tuple(doubts(published.rows()))


def about_measured(cells: Sequence[Measured], imported: Rows) -> list[Doubt]:
    """Return the doubts about our own cells and the imported rows."""
    above = list(limits.above_own_product(cells))
    explained = [(doubt.rule, doubt.row) for doubt in above]
    by_rules = doubts([*results(cells), *imported])
    return [*(doubt for doubt in by_rules if (doubt.rule, doubt.row) not in explained), *above]
