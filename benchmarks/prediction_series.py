"""The published series as questions with a known answer: predict a larger topology from the smaller ones.

A series is what one source published of one configuration on several topologies. `questions` leaves out its larger
topologies. Three kinds of questions are asked, as `throughline.prediction.answer` names them:

* between: fitted on up to the second number of nodes (1 and 2, or what a source has), predicted on all larger ones.
* inside: fitted on the smaller numbers of devices of one node, predicted on its larger ones.
* strong: the batch of each device falls from one node over two to four, taken from the source's tables of other sizes.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from throughline.comparables import published
from throughline.prediction.answer import Kind, kind_of
from throughline.prediction.step import Place
from throughline.records import MeasuredPoint, Result
from throughline.spec import Topology

LOOKUPS = "wide-deep"
"""Its exchange depends on the rows that ranks draw, so `predict` refuses it."""
SAME = 0.005
"""Two series of one model are one measurement, printed twice, if no speed differs by more than this share."""
UNSEEN = Path(__file__).with_name("prediction_unseen.csv")


@dataclass(frozen=True)
class Series:
    """One configuration of one source. family: all that decides its speed except the batch."""

    source: str
    framework: str
    family: tuple[object, ...]
    batch: float
    gradient_accumulation: int
    step_s: Mapping[tuple[int, int], float]
    """(nodes, devices of each node) -> seconds."""

    def point(self, place: tuple[int, int]) -> MeasuredPoint:
        return MeasuredPoint(
            topology=str(Topology(*place)),
            global_batch=self.samples(place),
            gradient_accumulation=self.gradient_accumulation,
            step_s=[self.step_s[place]],
            compute_s=None,
            input_s=None,
            all_reduce=[],
        )

    def target(self, place: tuple[int, int]) -> Place:
        return Place(Topology(*place), self.samples(place), self.gradient_accumulation)

    def samples(self, place: tuple[int, int]) -> int:
        return round(self.batch * place[0] * place[1] * self.gradient_accumulation)

    @property
    def nodes(self) -> list[int]:
        return sorted({nodes for nodes, _ in self.step_s})


@dataclass(frozen=True)
class Question:
    """What is known, what is asked, and the answer: the measured seconds of a step."""

    series: Series
    points: tuple[MeasuredPoint, ...]
    target: Place
    step_s: float

    @property
    def kind(self) -> Kind:
        return kind_of(self.points, self.target)


def series() -> list[Series]:
    """Return all series of resources/published.csv with at least two topologies, each measurement once."""
    steps: dict[tuple[object, ...], dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in published.rows():
        key, step_s = _key(row), _step_s(row)
        if key and step_s and row.nodes and row.devices:
            steps[key][row.nodes, row.devices // row.nodes].append(step_s)
    found: list[Series] = []
    for (source, framework, family, batch, gradient_accumulation), places in steps.items():
        middles = {place: sum(values) / len(values) for place, values in sorted(places.items(), key=_size)}
        one = Series(source, framework, family, batch, gradient_accumulation, middles)  # type: ignore[arg-type]
        if len(middles) > 1 and not any(_same(one, other) for other in found):
            found.append(one)
    return found


def unseen() -> list[Series]:
    """Return the series of prediction_unseen.csv, which no calibration and no decision about the model has seen.

    They are llm-foundry's tables of MPT models: all configurations with three or more numbers of nodes, weights
    sharded, tokens/s of each device rounded to whole ones.
    """
    steps: dict[tuple[str, ...], dict[tuple[int, int], float]] = defaultdict(dict)
    with UNSEEN.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            nodes, tokens = int(row["nodes"]), int(row["batch"]) * int(row["sequence_length"])
            key = row["model"], row["device"], row["options"], row["batch"]
            steps[key][nodes, int(row["devices"]) // nodes] = tokens / int(row["tokens_per_s_per_device"])
    return [Series("llm-foundry", "PyTorch", key, float(key[-1]), 1, places) for key, places in steps.items()]


def questions(all_series: Iterable[Series]) -> list[Question]:
    everything = list(all_series)
    families: dict[tuple[object, ...], list[Series]] = defaultdict(list)
    for one in everything:
        families[one.source, one.family, one.gradient_accumulation].append(one)
    asked = [question for one in everything for question in (*_between(one), *_inside(one))]
    return asked + [question for family in families.values() for question in _strong(family)]


def _between(one: Series) -> Iterator[Question]:
    if len(one.nodes) >= 3:
        known = tuple(one.point(place) for place in one.step_s if place[0] <= one.nodes[1])
        for place in one.step_s:
            if place[0] > one.nodes[1]:
                yield Question(one, known, one.target(place), one.step_s[place])


def _inside(one: Series) -> Iterator[Question]:
    places = [place for place in one.step_s if place[0] == 1]
    for count in range(2, len(places)):
        known = tuple(one.point(place) for place in places[:count])
        for place in places[count:]:
            yield Question(one, known, one.target(place), one.step_s[place])


def refused(all_series: Iterable[Series]) -> list[Question]:
    """Return the questions that `predict` refuses: several nodes, where only one was measured."""
    found = []
    for one in all_series:
        known = tuple(one.point(place) for place in one.step_s if place[0] == 1)
        places = [place for place in one.step_s if place[0] > 1] if len(known) > 1 else []
        found += [Question(one, known, one.target(place), one.step_s[place]) for place in places]
    return found


def _strong(family: list[Series]) -> Iterator[Question]:
    """Ask for 4 nodes with a batch that some point does not have; the batches fall with the nodes."""
    for small in family:
        for medium in family:
            for large in family:
                falls = large.batch >= medium.batch >= small.batch < large.batch
                if falls and (1, 8) in large.step_s and (2, 8) in medium.step_s and (4, 8) in small.step_s:
                    known = [large.point(place) for place in large.step_s if place[0] == 1]
                    points = (*known, medium.point((2, 8)))
                    yield Question(small, points, small.target((4, 8)), small.step_s[4, 8])


def _key(row: Result) -> tuple[object, ...] | None:
    """Return what a series shares; None for a row that is no training step that `predict` answers for."""
    batch = row.batch or (row.global_batch / row.devices if row.global_batch and row.devices else None)
    if batch is None or row.model == LOOKUPS or ("tensor" in row.options and "tensor 1, pipeline 1" not in row.options):
        return None
    family = (
        row.software, row.model, str(row.parameters), row.sequence_length, row.precision, row.device, row.options,
    )  # fmt: skip
    return row.source, row.framework, family, batch, row.gradient_accumulation or 1


def _step_s(row: Result) -> float | None:
    """Return the seconds of a step: as printed, or from the printed speed."""
    if "seconds_per_step" in row.printed:
        return float(row.printed["seconds_per_step"])
    speed, batch = row.samples_per_s, row.global_batch
    if batch is None and row.batch and row.devices:
        batch = row.batch * row.devices * (row.gradient_accumulation or 1)
    return 2 * batch / sum(speed) if speed and batch else None


def _size(item: tuple[tuple[int, int], object]) -> tuple[int, int]:
    (nodes, devices), _ = item
    return nodes * devices, nodes


def _same(one: Series, other: Series) -> bool:
    if one.family[1] != other.family[1] or one.batch != other.batch or one.step_s.keys() != other.step_s.keys():
        return False
    return all(abs(math.log(one.step_s[place] / other.step_s[place])) < SAME for place in one.step_s)
