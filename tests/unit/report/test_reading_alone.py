"""Reading alone: which runs the extra adds, how passes of ranks become figures, and the table beside training."""

from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from report_fixture import frame, scoped, summarized
from throughline.files import UserError
from throughline.launch import outcome
from throughline.messages import ReadPass
from throughline.report.answers import derived, headline
from throughline.report.render.tables import CSV
from throughline.report.topics.reading_alone import NOT_COLD, table
from throughline.spec import Steps
from throughline.study import runs
from throughline.study.config import load

BLOCK: dict[str, Any] = {
    "model": "bert-tiny", "sequence_length": 32, "frameworks": ["torch", "jax"], "topologies": ["1n1g", "1n2g"],
    "batch": {"fp32": [8, 16], "fp16": [8]}, "repeats": 2, "extras": ["reading"], "options": {"data": "synthetic"},
}  # fmt: skip


def test_one_framework_and_size_reads_on_every_topology() -> None:
    specs = [spec for spec in runs.expand(load([], {"benchmarks": {"b": BLOCK}})) if spec.benchmark == "b__reading"]
    assert [(spec.framework, spec.precision, spec.batch, spec.repeat) for spec in specs[::2]] == [
        ("torch", "fp32", 8, 1), ("torch", "fp32", 8, 2),
    ]  # fmt: skip
    assert [str(spec.topology) for spec in specs] == ["1n1g", "1n2g"] * 2
    assert all(spec.corpus and spec.options.data == "reading" for spec in specs), "also beside synthetic batches"
    assert specs[0].steps == Steps(warmup=0, timed=1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"options": {"data": "reading"}}, "write extras: [reading]"),
        ({"model": "matmul", "batch": {"fp32": [1]}}, "matmul reads no data"),
    ],
)
def test_what_cannot_be_read_alone(changes: dict[str, Any], says: str) -> None:
    block = {**BLOCK, **changes}
    if "model" in changes:
        del block["sequence_length"], block["options"]
    with pytest.raises(UserError, match=says.replace("[", r"\[")):
        load([], {"benchmarks": {"b": block}})


def test_the_ranks_read_together() -> None:
    """Four ranks, of which two share a replica: their rows count once."""
    spec = training_fixtures.spec(topology="1n4g", options={"data": "reading", "tensor_parallel": 2})
    passes = [[ReadPass(2, "cold", 100, seconds)] for seconds in (1, 1, 2)] + [[ReadPass(2, "not cold", 100, 2)]]
    figures = outcome._read_alone(spec, [training_fixtures.measured(reading=each) for each in passes])
    assert [(one["name"], one["at"], one["value"]) for one in figures] == [("reading_not_cold", 2, 150.0)]


def test_reading_stands_beside_what_training_needs(tmp_path: Path) -> None:
    def figure(state: str, at: int, value: float) -> dict[str, Any]:
        return {"name": f"reading_{state}", "unit": "samples/s", "better": "more", "at": at, "value": value}

    figures = [figure("not_cold", 1, 90.0), figure("warm", 1, 250.0), figure("cold", 2, 310.0)]
    training = summarized(tmp_path, {"1n1g": 100.0, "jax": 50.0, "1n2g": 180.0})
    alone = summarized(
        tmp_path, {"1n1g": 310.0}, benchmark="bert__reading", options={"data": "reading"}, beside={"figures": figures}
    )
    scope = scoped(training.model_copy(update={"benchmark": "bert"}), alone)
    found = table(scope)
    rows = frame(found)
    assert list(rows["workers"]) == [1, 2, 1, 2], "for each framework on one device; two devices have not read"
    assert list(rows["warm_times"])[::2] == pytest.approx([2.5, 5.0], rel=0.01)
    assert list(rows["cold_times"].dropna()) == pytest.approx([3.1, 6.2], rel=0.01)
    assert found and found.in_form(CSV) and any(e.reason == NOT_COLD for e in found.lines[0].entries)
    assert scope.everything[1].measured[0].shown == "torch (reading alone)" and not scope.everything[1].exchanges
    other = scoped(alone, training)
    assert "*Reading alone* of bert" in derived(other)
    assert headline(other).startswith("torch (reading alone) reads for bert-base at 310.0 samples/s")
