"""Pairs: what counts as a difference, and what the machine cannot tell apart."""

from pathlib import Path
from typing import Any

import pytest

from report_fixture import (
    CPU,
    checked,
    frame,
    group_of,
    jitter,
    read_csv,
    run_script,
    scoped,
    summarized,
    write_series,
    write_summary,
)
from throughline import ratios
from throughline.report import answers
from throughline.report.analysis import cells, differences, judged_pairs, summary
from throughline.report.analysis.comparison import Comparison, Floor
from throughline.report.render import page, table_files, tables
from throughline.report.topic import Scope
from throughline.report.topics import TOPICS, comparisons, write_tables
from throughline.report.topics.comparisons import TOPIC
from throughline.study.result_sections import Price

COMPILED: dict[str, Any] = {"options": {"compile": True}}


def group(root: Path, name: str, speeds: dict[str, float], **changes: Any) -> cells.Group:
    return group_of(summarized(root, speeds, benchmark=name, **changes))


def verdicts(here: list[cells.Group], everything: list[cells.Group]) -> dict[str, str]:
    return {pair.what: pair.verdict for pair in judged_pairs.judge(here, everything)}


def test_a_a_runs_set_the_smallest_difference_also_in_the_file(tmp_path: Path) -> None:
    two, again = group(tmp_path, "base", {"1n1g": 100.0, "1n2g": 150.0}), group(tmp_path, "base__aa", {"1n1g": 102.7})
    scope = Scope([two], [two, again])
    (pair,) = scope.pairs
    assert pair.floor and (pair.floor.what, pair.floor.share) == ("torch", pytest.approx(0.027))
    assert pair.floor.compared == 1 and "one new pair in 2 differs by more" in pair.floor.text
    write_tables(scope, tmp_path)
    (row,) = read_csv(tmp_path / "comparisons.csv")
    assert (row["compared"], row["verdict"], row["a_a_pairs"]) == ("1n2g over 1n1g", "faster", "1")
    assert float(row["ratio"]) == pytest.approx(1.5)
    assert float(row["smallest_difference"]) == pytest.approx(0.027)
    write_tables(Scope([group(tmp_path, "base", {"1n1g": 100.0})]), tmp_path / "none")
    assert (tmp_path / "none/comparisons.csv").read_text().startswith("compared,where,ratio")


@pytest.mark.parametrize(("floor", "verdict"), [(0.05, "faster"), (0.077, "inconclusive"), (0.2, "no difference")])
def test_a_difference_has_to_lie_beyond_the_floor(floor: float, verdict: str) -> None:
    before, after = jitter(100.0), jitter(108.0)
    tested = ratios.tested(before, after, paired=False)
    one = Comparison(before=before, after=after, tested=tested, floor=Floor("torch", floor, 1), adjusted=1e-4, tests=1)
    assert one.verdict == verdict
    assert ("reaches into the 8.0 % of A/A runs" in one.reason) is (verdict == "inconclusive")


@pytest.mark.parametrize(("gain", "verdict"), [(0.9, "slower"), (1.0, "no difference"), (1.3, "faster")])
def test_compile_is_compared_with_the_block_that_goes_without(tmp_path: Path, gain: float, verdict: str) -> None:
    plain = group(tmp_path, "plain", {"1n1g": 100.0})
    compiled = group(tmp_path, "compiled", {"1n1g": 100.0 * gain}, **COMPILED)
    other = group(tmp_path, "other", {"1n1g": 70.0}, options={"compile": True, "clip": "norm"})
    everything = [plain, compiled, other]
    assert verdicts([compiled], everything) == {"compile over none": verdict}
    assert set(verdicts([plain, other], everything)) == {"clip norm over none"}


@pytest.mark.parametrize(
    ("repeats", "why"),
    [(1, "1 valid repeat cannot decide any of the 4 comparisons"),
     (2, "2 valid repeats cannot decide any of the 4 comparisons"), (3, None)],
)  # fmt: skip
def test_pairs_that_no_repeats_could_tell_apart_are_one_sentence(tmp_path: Path, repeats: int, why: str | None) -> None:
    """So few repeats that there is no test; three have one. The text does not mention tests that were not made."""
    speeds = {"torch": 100.0, "torch 1n2g": 200.0, "mxnet-horovod": 300.0, "mxnet-horovod 1n2g": 600.0}
    scope = scoped(summarized(tmp_path, {cell: jitter(speed, repeats) for cell, speed in speeds.items()}, repeats))
    assert all((pair.p is None and "no test" in pair.reason) is (why is not None) for pair in scope.pairs)
    remarks = " ".join(comparisons.table(scope).notes)
    assert ("t-test" in remarks) is (why is None)
    assert "cannot decide" not in remarks if why is None else why in remarks and "needs at least 3 repeats" in remarks


def made(root: Path, place: Path, *extras: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Make comparisons.csv as the rule for tables does; map each pair to its verdict and reason."""
    run_script("tables", place, "--extras", *extras, "--output-dir", root / "tables")
    rows = read_csv(root / "tables/comparisons.csv")
    return {(row["compared"], row["where"]): (row["verdict"], row["because"]) for row in rows}


def written(root: Path, name: str, speeds: dict[str, float], **changes: Any) -> Path:
    series = {cell: jitter(speed, 7) for cell, speed in speeds.items()}
    return write_summary(write_series(root, series, benchmark=name, **changes), repeats=7)


def on(day: str) -> dict[str, Any]:
    return {"beside": {"started": f"{day}T12:00:00Z", "ended": f"{day}T13:00:00Z"}}


OTHERS: dict[str, dict[str, Any]] = {
    "device": {"device_found": CPU},
    "software": {"framework_versions": {"torch": "2.12.0", "driver": "580.10"}},
    "workload": {"sequence_length": 512},
    "day": on("2026-10-01"),
}


@pytest.mark.parametrize("other", [None, *OTHERS])
def test_page_and_csv_say_the_same_of_every_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str | None
) -> None:
    """A noisy A/A run hides a difference only if it was made under the conditions of the pair. Other A/A runs, of this
    configuration or earlier ones, hide nothing."""
    paths = [
        written(tmp_path, "plain", {"1n1g": 100.0, "1n2g": 150.0}),
        written(tmp_path, "quick", {"1n1g": 104.0, "1n2g": 180.0}, **COMPILED),
        written(tmp_path, "plain__aa", {"1n1g": 110.0}, **OTHERS.get(other or "", {})),
        written(tmp_path, "old", {"1n1g": 100.0}, **on("2026-09-01")),
        written(tmp_path, "old__aa", {"1n1g": 160.0}, **on("2026-09-01")),
    ]
    found = page.collect(tmp_path, paths[:3])
    assert len(found.earlier) == 2
    printed: dict[str, Any] = {}
    monkeypatch.setattr(page, "_benchmark", lambda scope, prefix: printed.setdefault(scope.benchmark, scope) and {})
    monkeypatch.setattr(page.Environment, "get_template", lambda *_: type("", (), {"render": lambda self, **_: ""})())
    page.render(found, [], None, tmp_path / "report.html")
    table = TOPIC.table(printed["quick"])
    on_page = table and table.in_form(tables.PAGE)
    assert on_page
    header, rows = table_files.printed(on_page)
    assert header[-2:] == ["verdict", "because"]
    shown = {(row[0], row[1]): (row[-2], row[-1]) for row in rows}
    assert shown == made(tmp_path, paths[1], paths[0], paths[2])
    assert len(shown) == 3
    verdict, why = shown["compile over none", "1n1g, fp32, batch 32, quick against plain"]
    assert verdict == ("faster in these runs" if other else "inconclusive"), why
    assert (shown["1n2g over 1n1g", "torch, fp32, batch 32"][0] == "faster in these runs") is (other is not None)


@pytest.mark.parametrize("other", [None, *OTHERS])
def test_two_a_a_runs_of_another_place_or_time_hide_nothing(tmp_path: Path, other: str | None) -> None:
    quick = group(tmp_path, "quick", {"1n1g": 104.0, "1n2g": 180.0}, **COMPILED)
    aa = [
        group(tmp_path, name, {"1n1g": speed}, **OTHERS.get(other or "", {}))
        for name, speed in (("plain", 100.0), ("plain__aa", 190.0))
    ]
    assert verdicts([quick], [quick, *aa])["1n2g over 1n1g"] == ("faster" if other else "inconclusive")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"framework_versions": {"torch": "2.12.0", "driver": "580.10"}}, "torch is 2.12.0 and 2.13.0"),
        ({"framework_versions": {"torch": "2.13.0", "driver": "570.1"}}, "driver is 570.1 and 580.10"),
        ({"device_found": CPU}, "device.name is AMD EPYC"),
        (
            {"beside": {"data": {"content_digest": "cd" * 32, "rows": 9}}},
            "data.content is cdcdcdcdcdcd and ab",
        ),
    ],
)
def test_unlike_runs_have_no_verdict_and_say_in_what_they_differ(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    plain = group(tmp_path, "plain", {"1n1g": 100.0}, **change)
    compiled = group(tmp_path, "compiled", {"1n1g": 130.0}, **COMPILED)
    (pair,) = judged_pairs.judge([compiled], [plain, compiled])
    assert (pair.verdict, pair.ratio, pair.adjusted) == ("not comparable", pytest.approx(1.3), None)
    assert said in pair.reason


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_the_variable_that_switches_tf32_off_belongs_to_the_precision(tmp_path: Path, precision: str) -> None:
    """Every precision but tf32 sets it. Between runs of one precision it is a difference like any other."""
    full = summarized(tmp_path, {"1n1g": 100.0}, benchmark="full")
    facts = full.environment["torch"]
    off = {**facts, "variables": {**facts["variables"], "NVIDIA_TF32_OVERRIDE": "0"}}
    (first,) = group_of(full.model_copy(update={"environment": {"torch": off}})).measured
    (second,) = group(tmp_path, "other", {"1n1g": 130.0}, precision=precision).measured
    said = any("NVIDIA_TF32_OVERRIDE" in text for text in differences.differences(first, second))
    assert said == (precision == "fp32")


def test_cells_of_one_summary_that_ran_in_two_environments_have_no_verdict(tmp_path: Path) -> None:
    old = {"torch": "2.12.0", "transformers": "5.23.0", "cuda": "13.0", "driver": "580.10"}
    records = write_series(tmp_path, {"1n1g": 100.0}, framework_versions=old)
    one = summary.summarize([*records, *write_series(tmp_path, {"1n2g": 190.0})], repeats=5)
    cell = one.frameworks["torch"]["1n2g"]
    assert cell.ran_in and cell.ran_in["environment.framework.torch"] == "2.13.0"
    assert (cell.started, cell.ended) == ("2026-11-20T12:00:00Z", "2026-11-20T12:05:30Z")
    (pair,) = scoped(one).pairs
    assert pair.verdict == "not comparable" and "torch is 2.12.0 and 2.13.0" in pair.reason


def test_unequal_frameworks_are_ranked_nowhere(tmp_path: Path) -> None:
    """The faster framework does not compute the same. Derived runs have no separate equivalence check."""
    speeds = {"mxnet-horovod": 200.0, "torch": 100.0}
    terms = summary.Terms(prices={"V100": Price(per_hour=5.3, currency="CNY")})
    both, derived = (summarized(tmp_path, speeds, 5, terms, benchmark=name) for name in ("both", "both__synthetic"))
    both = checked(both, **{"torch": "equal", "mxnet-horovod": "different"})
    groups = cells.groups([both, derived])
    for here in (groups[:1], groups[1:]):
        best = judged_pairs.fastest(here)
        assert best and best.framework == "torch" and answers.headline(Scope(here)).startswith("torch trains")
        (pair,) = judged_pairs.judge(here, groups)
        assert (pair.what, pair.verdict) == ("mxnet-horovod (unequal) over torch", "not comparable")
        (cost,) = [topic.table(Scope(here)) for topic in TOPICS if topic.name == "cost"]
        value = "best value, samples for 1 CNY: torch 1n1g"
        assert cost and next(note for note in cost.notes if "best value" in note).startswith(value)
    alone = both.model_copy(update={"frameworks": {"mxnet-horovod": both.frameworks["mxnet-horovod"]}})
    assert judged_pairs.fastest(cells.groups([alone])) is None
    assert answers.headline(scoped(alone)).startswith("No figure is shown here: mxnet-horovod does not compute")


def test_the_verdict_follows_p_adjusted_for_its_family(tmp_path: Path) -> None:
    """The same pair is told apart alone, and not among seven of its family. Other families do not count."""
    noisy = [1.12 * value for value in (103.0, 96.0, 108.0, 100.0, 95.0)]
    plain = [100.0, 103.0, 98.0, 101.0, 102.0]
    series = {f"1n{index}g": plain if index % 2 else noisy for index in range(1, 9)}
    two, eight = ({key: series[key] for key in list(series)[:count]} for count in (2, 8))
    scope = scoped(summarized(tmp_path / "eight", eight))
    (alone,) = scoped(summarized(tmp_path / "two", two)).pairs
    first, *others = scope.pairs
    assert alone.p == first.p and alone.adjusted == alone.p and first.adjusted == pytest.approx(7 * (first.p or 0))
    assert (alone.verdict, first.verdict, first.tests, len(others)) == ("faster", "inconclusive", 7, 6)
    assert "(Holm over 7 pairs: p = 0." in first.reason
    assert frame(TOPIC.table(scope))["p_holm"][0] == pytest.approx(first.adjusted)
    assert "repeats would detect differences of 5 % in 9 of 10 cases" in " ".join(comparisons.table(scope).notes)
