"""Gather what each rank of a cell did by itself: its step without exchange, and its matrix product."""

from collections.abc import Callable, Mapping, Sequence

from throughline.records import Rank, RankFigures, RunRecord

Figure = Callable[[RunRecord, Rank], float | None]


def of(runs: Sequence[RunRecord], repeats: int) -> list[RankFigures] | None:
    """Return the figures of all ranks in each of the repeats 1 to `repeats`; None if the runs tell none.

    A single rank has no others to stand beside, so it has none.
    """
    by_repeat = {run.spec.repeat: run for run in runs if run.status == "ok" and len(run.ranks) > 1}
    figures = {"solo_step_s": _solo_step_s, "matmul_flops_per_s": _product}
    known = {name: _of_ranks(by_repeat, repeats, figure) for name, figure in figures.items()}
    if not any(known.values()):
        return None
    places = next(iter(by_repeat.values()))
    return [
        RankFigures(
            rank=rank.rank,
            node=rank.node,
            device=rank.rank - min(other.rank for other in places.ranks if other.node == rank.node),
            **{name: values[index] if values else None for name, values in known.items()},
        )
        for index, rank in enumerate(places.ranks)
    ]


def _of_ranks(by_repeat: Mapping[int, RunRecord], repeats: int, figure: Figure) -> list[list[float | None]] | None:
    """Return a figure of each rank in each repeat; None if no repeat has it of all its ranks."""
    found = {repeat: [figure(run, rank) for rank in run.ranks] for repeat, run in by_repeat.items()}
    whole = {repeat: values for repeat, values in found.items() if all(values)}
    if not whole:
        return None
    ranks = range(len(next(iter(whole.values()))))
    return [[whole[repeat][rank] if repeat in whole else None for repeat in range(1, repeats + 1)] for rank in ranks]


def _solo_step_s(run: RunRecord, rank: Rank) -> float | None:
    """Return the seconds of a rank's step. Ranks that exchange wait for each other, so they all have the same."""
    if run.spec.options.gradient_sync or not run.steps_timed:
        return None
    return (rank.window_end_s - rank.window_start_s) / run.steps_timed or None


def _product(run: RunRecord, rank: Rank) -> float | None:
    """Return a rank's matrix product. Without an exchange, the others may still train while it multiplies."""
    return rank.matmul_flops_per_s if run.spec.options.gradient_sync else None
