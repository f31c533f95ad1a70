"""How well predictions did on published results: fitted on the smaller topologies, judged on the larger ones.

`python benchmarks/prediction.py` takes all series of resources/published.csv (`prediction_series.py`). Each source is
judged with intervals that never saw it: they are calibrated on all other sources. Beside the model stand four other
laws (`prediction_rivals.py`), with intervals made in the same way. Nothing else is tuned on these series. The rows
`never seen` take series of another laboratory and newer GPUs, after the model was done. The last line has the figures
of the questions `between`: more nodes than were measured.

`--write` writes resources/prediction.json, the calibration on all sources.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import harness
from prediction_rivals import RIVALS, Rival
from prediction_series import Question, questions, refused, series, unseen

from throughline.comparables import published
from throughline.prediction.answer import FILE, KINDS, LEVEL, Kind, Scores, quantile, unit
from throughline.prediction.step import predicted

OURS = "this model"
CONSTANT = 0.05
"""The unit of the rivals' errors, which is the same for all questions; its size does not matter."""


@dataclass(frozen=True)
class Answer:
    """An answered question. error: predicted over measured step, as a logarithm; unit: of its score."""

    question: Question
    error: float
    unit: float

    @property
    def share(self) -> float:
        """The error of the predicted throughput, as a share of the measured one."""
        return abs(math.expm1(-self.error))


@dataclass(frozen=True)
class Judged:
    """What came out: shares of 1, and how many sources and answers there are. half: the median half-width (log)."""

    median: float
    ninetieth: float
    bias: float
    coverage: float
    half: float
    answers: int
    sources: int


def ours(question: Question) -> Answer:
    steps, fits, _ = predicted(question.points, question.target)
    error = math.log(float(steps[0]) / question.step_s)
    return Answer(question, error, unit(question.points, question.target, fits))


def theirs(rival: Rival, question: Question) -> Answer:
    return Answer(question, math.log(rival(question.points, question.target) / question.step_s), CONSTANT)


def calibrated(answers: Sequence[Answer]) -> Scores:
    """Return the scores of answers: their errors over their units."""
    scores: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for answer in answers:
        scores[answer.question.kind].append(abs(answer.error) / answer.unit)
    return {kind: sorted(values) for kind, values in scores.items()}


def judge(answers: Sequence[Answer], whole: Callable[[Answer], str]) -> Judged:
    """Judge the answers of each part, such as a source, with a calibration on all others. whole: names the part."""
    parts: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        parts[whole(answer)].append(answer)
    halves = []
    for name, part in parts.items():
        others = [answer for other, seen in parts.items() if other != name for answer in seen]
        halves += _halves(part, calibrated(others))
    return judged([answer for part in parts.values() for answer in part], halves)


def _halves(answers: Sequence[Answer], scores: Scores) -> list[float]:
    return [quantile(scores[answer.question.kind], LEVEL) * answer.unit for answer in answers]


def judged(answers: Sequence[Answer], halves: Sequence[float]) -> Judged:
    """Return what came out of answers with these half-widths."""
    inside = sum(abs(answer.error) <= half for answer, half in zip(answers, halves, strict=True))
    shares = sorted(answer.share for answer in answers)
    bias = statistics.median(-math.expm1(answer.error) for answer in answers)
    sources = len({answer.question.series.source for answer in answers})
    ninetieth = shares[math.ceil(0.9 * len(shares)) - 1]
    half = statistics.median(halves)
    return Judged(statistics.median(shares), ninetieth, bias, inside / len(answers), half, len(answers), sources)


def source(answer: Answer) -> str:
    return answer.question.series.source


def framework(answer: Answer) -> str:
    return answer.question.series.framework


def last_line(one: Judged) -> str:
    return (
        f"median error {100 * one.median:.1f} %, coverage {100 * one.coverage:.0f} % "
        f"({100 * LEVEL:.0f} % nominal), sources {one.sources}"
    )


def backtest(asked: Sequence[Question]) -> dict[tuple[str, str], Judged]:
    """Return what came out, by question and way."""
    by_kind = {kind: [question for question in asked if question.kind == kind] for kind in KINDS}
    ways: dict[str, Callable[[Question], Answer]] = {OURS: ours}
    ways |= {name: partial(theirs, rival) for name, rival in RIVALS.items()}
    answered = {way: [answer(question) for question in by_kind["between"]] for way, answer in ways.items()}
    found = {("more nodes", way): judge(answers, source) for way, answers in answered.items()}
    found["more nodes, its framework left out too", OURS] = judge(answered[OURS], framework)
    for kind, text in {"inside": "more devices of one node", "strong": "more nodes and smaller batches"}.items():
        found[text, OURS] = judge([ours(question) for question in by_kind[kind]], source)  # type: ignore[index]
    found["beyond one node, where none was measured (refused)", OURS] = judge(
        [ours(question) for question in refused(series())], source
    )
    return found


def never_seen(asked: Sequence[Question]) -> dict[tuple[str, str], Judged]:
    """Return what came out on the series that nothing was calibrated on, with the calibration on all published ones."""
    answers = [ours(question) for question in questions(unseen())]
    calibration = calibrated([ours(question) for question in asked if question.kind == "between"])
    return {("never seen: H100 and A100", OURS): judged(answers, _halves(answers, calibration))}


def content(asked: Sequence[Question]) -> dict[str, Any]:
    """Return the content of resources/prediction.json: the calibration on all sources."""
    scores = calibrated([ours(question) for question in asked])
    return {
        "made_by": "python benchmarks/prediction.py --write",
        "published_sha256": hashlib.sha256(published.FILE.read_bytes()).hexdigest(),
        "scores": {kind: [round(score, 4) for score in values] for kind, values in scores.items()},
    }


def table(found: Mapping[tuple[str, str], Judged]) -> str:
    """Return what came out, in Markdown."""
    names = ("median error", "90th percentile", "median bias", "inside", "median half-width", "answers", "sources")
    lines = harness.head("question", "way", *names, left=2)
    for (question, way), one in found.items():
        shares = (one.median, one.ninetieth, one.bias, one.coverage, math.expm1(one.half))
        lines.append(
            harness.line(question, way, *(f"{100 * share:.1f} %" for share in shares), one.answers, one.sources)
        )
    return "\n".join(lines)


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--write", action="store_true", help="write resources/prediction.json")
    given, asked = parser.parse_args(), questions(series())
    if given.write:
        FILE.write_text(json.dumps(content(asked)) + "\n", encoding="utf-8")
    found = backtest(asked) | never_seen(asked)
    print(table(found))
    print(f"\n{last_line(found['more nodes', OURS])}")


if __name__ == "__main__":
    main()
