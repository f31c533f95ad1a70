"""The back-test on published series: what it reaches, and that the committed calibration is what it makes."""

import json
import sys
from functools import cache
from pathlib import Path

from throughline import sources
from throughline.prediction.answer import FILE, KINDS
from throughline.spec import Topology

sys.path.append(str(sources.ROOT.parents[1] / "benchmarks"))
import prediction as benchmark
from prediction_series import Question, Series, questions, series


@cache
def asked() -> list[Question]:
    return questions(series())


@cache
def found() -> dict[tuple[str, str], benchmark.Judged]:
    return benchmark.backtest(asked()) | benchmark.never_seen(asked())


def test_the_last_line_is_within_the_aim_and_better_than_every_other_law() -> None:
    judged = found()["more nodes", benchmark.OURS]
    assert judged.median < 0.035 and judged.sources >= 20
    assert 0.86 <= judged.coverage <= 0.95
    assert benchmark.last_line(judged).startswith("median error 2.4 %, coverage 90 % (90 % nominal), sources ")
    rivals = [one for (question, way), one in found().items() if question == "more nodes" and way != benchmark.OURS]
    assert len(rivals) == 4
    for rival in rivals:
        assert judged.median < rival.median and judged.ninetieth < rival.ninetieth and judged.half < rival.half


def test_what_was_never_seen_came_out_as_the_page_says() -> None:
    """Its coverage is below 90 %: 4 of 19 predictions are outside, and method-prediction.md says which."""
    judged = found()["never seen: H100 and A100", benchmark.OURS]
    assert (judged.answers, round(judged.coverage * 19)) == (19, 15) and judged.median < 0.015


def test_the_page_has_the_table() -> None:
    page = (sources.ROOT.parents[1] / "docs/explanation/method-prediction.md").read_text(encoding="utf-8")
    missing = [line for line in benchmark.table(found()).splitlines() if line not in page]
    assert not missing, "copy the table of benchmarks/prediction.py to docs/explanation/method-prediction.md"


def test_a_judged_source_is_in_no_calibration() -> None:
    """A source with errors like no other one's is missed by its intervals, however many series it has."""
    answers = [benchmark.ours(question) for question in asked() if question.kind == "between"]
    odd = [answer for answer in answers if benchmark.source(answer) == "DLPerf OneFlow BERT"]
    far = [benchmark.Answer(answer.question, 9.0, answer.unit) for answer in odd]
    judged = benchmark.judge([answer for answer in answers if answer not in odd] + far, benchmark.source)
    assert len(far) > 10 and judged.coverage <= 1 - len(far) / len(answers)


def test_the_committed_calibration_is_what_the_benchmark_makes(tmp_path: Path) -> None:
    made = benchmark.content(asked())
    committed = json.loads(FILE.read_text(encoding="utf-8"))
    assert committed.keys() == made.keys()
    assert committed["published_sha256"] == made["published_sha256"], "python benchmarks/prediction.py --write"
    for kind in KINDS:
        pairs = zip(committed["scores"][kind], made["scores"][kind], strict=True)
        assert all(abs(one - other) < 2e-4 for one, other in pairs), "python benchmarks/prediction.py --write"


def test_one_measurement_that_two_sources_print_counts_once() -> None:
    sources_of_gpt = {one.source for one in series() if "gpt-1536x16" in one.family}
    assert "DLPerf Megatron-LM GPT" in sources_of_gpt
    assert "DLPerf GPT report 210512" not in sources_of_gpt


def test_questions_ask_for_larger_topologies_than_they_know() -> None:
    for question in asked():
        largest = max(Topology.parse(point.topology).world for point in question.points)
        assert question.target.topology.world > largest
    kinds = [question.kind for question in asked()]
    assert {kind: kinds.count(kind) > 50 for kind in KINDS} == dict.fromkeys(KINDS, True)
    one = Series("s", "f", (), 4, 2, {(1, 8): 0.5})
    assert one.point((1, 8)).global_batch == 64
