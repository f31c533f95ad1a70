"""A place that is slow in one figure, and how all places stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from throughline.acceptance.measured import FigureKey, Spot
from throughline.outliers import Standing
from throughline.records.acceptance import PlaceKind, SlowFigure

Standings = Mapping[FigureKey, Mapping[Spot, Standing]]


@dataclass(frozen=True)
class Slow:
    """A place that is slow in one figure."""

    key: FigureKey
    spot: Spot
    standing: Standing

    @property
    def entry(self) -> SlowFigure:
        low, high = self.standing.others_range or (0.0, 0.0)
        return SlowFigure(
            what=self.key.what,
            figure=self.key.figure,
            size=self.key.size,
            kind=self.key.kind,
            place=str(self.spot),
            distance=self.standing.distance or 0.0,
            others=self.standing.others,
            others_low=low,
            others_high=high,
        )


def slow_nodes(standings: Standings, *kinds: PlaceKind) -> set[int]:
    """Return the nodes with a slow figure of these kinds of places."""
    return {
        spot.nodes[0]
        for key, places in standings.items()
        if key.kind in kinds
        for spot, standing in places.items()
        if standing.slow
    }
