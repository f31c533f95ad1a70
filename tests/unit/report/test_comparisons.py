"""Pairs: what counts as a difference, and what the machine cannot tell apart."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from report_fixture import CPU, jitter, write_series
from throughline.records import EquivalenceVerdict, Summary
from throughline.report import answers
from throughline.report.analysis import asked_pairs, cells, differences, judged_pairs, summary
from throughline.report.render import page, table_files, tables
from throughline.report.topic import Scope
from throughline.report.topics import TOPICS, write_tables
from throughline.report.topics.comparisons import TOPIC


def found(root: Path, speeds: dict[str, list[float]], **changes: Any) -> Summary:
    return summary.summarize(write_series(root, speeds, **changes), repeats=5)


def aa(root: Path, one: float, other: float, **changes: Any) -> list[Summary]:
    return [
        found(root, {"1n1g": jitter(speed)}, benchmark=name, **changes)
        for name, speed in (("base", one), ("base__aa", other))
    ]


def verdicts(groups: list[cells.Group], everything: list[cells.Group] | None = None) -> dict[str, str]:
    return {pair.what: pair.verdict for pair in judged_pairs.judge(groups, everything or groups)}


def test_a_a_runs_set_the_smallest_difference(tmp_path: Path) -> None:
    two = found(tmp_path / "two", {"1n1g": jitter(100.0), "1n2g": jitter(150.0)}, benchmark="base")
    (pair,) = judged_pairs.judge(cells.groups([two]), cells.groups([two, aa(tmp_path, 100.0, 102.7)[1]]))
    floor = pair.floor
    assert floor and (floor.what, floor.share, floor.compared) == ("torch", pytest.approx(0.027), 1)
    assert "2.7 %" in floor.text and "one new pair in 2 differs by more" in floor.text


def test_below_it_no_difference_is_told(tmp_path: Path) -> None:
    """The two frameworks are 2 % apart in every round, but two A/A runs here differ by 2.7 %.

    A single A/A pair does not say that there is no difference either: with it the interval is wide.
    """
    records = [
        path for name, speed in (("torch", 100.0), ("mxnet-horovod", 102.0))
        for path in write_series(tmp_path, {"1n1g": jitter(speed)}, framework=name, benchmark="base")
    ]  # fmt: skip
    alone = cells.groups([summary.summarize(records, repeats=5)])
    assert verdicts(alone) == {"mxnet-horovod over torch": "faster"}
    everything = cells.groups([summary.summarize(records, repeats=5), aa(tmp_path, 100.0, 102.7)[1]])
    here = [group for group in everything if group.benchmark == "base"]
    assert verdicts(here, everything) == {"mxnet-horovod over torch": "inconclusive"}


def test_repeats_decide_where_no_a_a_run_does(tmp_path: Path) -> None:
    wide = [100.0, 90.0, 111.0, 96.0, 104.0]
    mixed = found(tmp_path, {"1n1g": wide, "1n2g": [value * 1.01 for value in reversed(wide)]})
    assert verdicts(cells.groups([mixed])) == {"1n2g over 1n1g": "inconclusive"}
    few = found(tmp_path / "few", {"1n1g": [100.0, 101.0], "1n2g": [200.0, 201.0]})
    (pair,) = judged_pairs.judge(cells.groups([few]))
    assert (pair.verdict, pair.p) == ("inconclusive", None)
    assert "no test" in pair.reason
    assert pair.range == (200 / 101, 201 / 100)


@pytest.mark.parametrize(("gain", "verdict"), [(0.9, "slower"), (1.0, "no difference"), (1.3, "faster")])
def test_compile_is_compared_with_the_block_that_goes_without(tmp_path: Path, gain: float, verdict: str) -> None:
    plain = found(tmp_path, {"1n1g": jitter(100.0)}, benchmark="plain")
    compiled = found(tmp_path, {"1n1g": jitter(100.0 * gain)}, benchmark="compiled", options={"compile": True})
    other = found(tmp_path, {"1n1g": jitter(70.0)}, benchmark="other", options={"compile": True, "clip": "norm"})
    everything = cells.groups([plain, compiled, other])
    here = [group for group in everything if group.benchmark == "compiled"]
    assert verdicts(here, everything) == {"compile over none": verdict}
    rest = verdicts([group for group in everything if group.benchmark != "compiled"], everything)
    assert set(rest) == {"clip norm over none"}


@pytest.mark.parametrize(
    ("repeats", "why"),
    [(1, "1 valid repeat cannot decide any of the 4 comparisons"),
     (2, "2 valid repeats cannot decide any of the 4 comparisons"), (3, None)],
)  # fmt: skip
def test_pairs_that_no_repeats_could_tell_apart_are_one_sentence(tmp_path: Path, repeats: int, why: str | None) -> None:
    """So few repeats that there is no test; three have one. The text does not mention tests that were not made."""
    records = [
        path for name, speed in (("torch", 100.0), ("mxnet-horovod", 300.0))
        for path in write_series(
            tmp_path, {"1n1g": jitter(speed, repeats), "1n2g": jitter(2 * speed, repeats)}, framework=name)
    ]  # fmt: skip
    scope = Scope(cells.groups([summary.summarize(records, repeats=repeats)]))
    remarks = " ".join(TOPIC.remarks(scope))
    assert ("Holm's correction (1979)" in remarks) is (why is None)
    assert "cannot decide" not in remarks if why is None else why in remarks and "needs at least 3 repeats" in remarks


def test_comparisons_as_a_file(tmp_path: Path) -> None:
    base, again = aa(tmp_path, 100.0, 102.7)
    two = found(tmp_path / "two", {"1n1g": jitter(100.0), "1n2g": jitter(150.0)}, benchmark="base")
    groups = cells.groups([two])
    write_tables(Scope(groups, [*groups, *cells.groups([again])]), tmp_path)
    with (tmp_path / "comparisons.csv").open(encoding="utf-8", newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["compared"], row["verdict"], row["a_a_pairs"]) == ("1n2g over 1n1g", "faster", "1")
    assert float(row["ratio"]) == pytest.approx(1.5)
    assert float(row["smallest_difference"]) == pytest.approx(0.027)
    write_tables(Scope(cells.groups([base])), tmp_path / "none")
    assert (tmp_path / "none/comparisons.csv").read_text().startswith("compared,where,ratio")


def made(root: Path, *names: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Make comparisons.csv as the rule for tables does; map each pair to its verdict and reason."""
    (root / "tables").mkdir()
    sys.argv = ["tables", str(root / names[0]), "--extras", *(str(root / name) for name in names[1:]), "--output-dir",
                str(root / "tables")]  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(__file__).parents[3] / "workflow/scripts/tables.py"), run_name="__main__")
    assert ended.value.code == 0
    with (root / "tables/comparisons.csv").open(encoding="utf-8", newline="") as stream:
        return {(row["compared"], row["where"]): (row["verdict"], row["because"]) for row in csv.DictReader(stream)}


def written(root: Path, name: str, speeds: dict[str, list[float]], **changes: Any) -> Path:
    summary.write(write_series(root, speeds, benchmark=name, **changes), root / name / "bz32_fp32.json", repeats=7)
    return root / name / "bz32_fp32.json"


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
    monkeypatch.setattr(sys, "argv", [])
    change, quick = OTHERS.get(other or "", {}), {"options": {"compile": True}}
    paths = [
        written(tmp_path, "plain", {"1n1g": jitter(100.0, 7), "1n2g": jitter(150.0, 7)}),
        written(tmp_path, "quick", {"1n1g": jitter(104.0, 7), "1n2g": jitter(180.0, 7)}, **quick),
        written(tmp_path, "plain__aa", {"1n1g": jitter(110.0, 7)}, **change),
        written(tmp_path, "old", {"1n1g": jitter(100.0, 7)}, **on("2026-09-01")),
        written(tmp_path, "old__aa", {"1n1g": jitter(160.0, 7)}, **on("2026-09-01")),
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
    assert shown == made(tmp_path, *(f"{name}/bz32_fp32.json" for name in ("quick", "plain", "plain__aa")))
    assert len(shown) == 3
    verdict, why = shown["compile over none", "1n1g, fp32, batch 32, quick against plain"]
    assert verdict == ("faster in these runs" if other else "inconclusive"), why
    assert (shown["1n2g over 1n1g", "torch, fp32, batch 32"][0] == "faster in these runs") is (other is not None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"framework_versions": {"torch": "2.12.0", "driver": "580.10"}}, "torch is 2.12.0 and 2.13.0"),
        ({"framework_versions": {"torch": "2.13.0", "driver": "570.1"}}, "driver is 570.1 and 580.10"),
        ({"device_found": CPU}, "device is AMD EPYC"),
        (
            {"beside": {"data": {"content_digest": "cd" * 32, "rows": 9}}},
            "the data differ (content cdcdcdcdcdcd and ab",
        ),
    ],
)
def test_unlike_runs_have_no_verdict_and_say_in_what_they_differ(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    plain = found(tmp_path, {"1n1g": jitter(100.0)}, benchmark="plain", **change)
    compiled = found(tmp_path, {"1n1g": jitter(130.0)}, benchmark="compiled", options={"compile": True})
    everything = cells.groups([plain, compiled])
    (pair,) = judged_pairs.judge(everything[1:], everything)
    assert (pair.verdict, pair.ratio, pair.adjusted) == ("not comparable", pytest.approx(1.3), None)
    assert said in pair.reason


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_the_variable_that_switches_tf32_off_belongs_to_the_precision(tmp_path: Path, precision: str) -> None:
    """Every precision but tf32 sets it. Between runs of one precision it is a difference like any other."""
    full = found(tmp_path, {"1n1g": jitter(100.0)}, benchmark="full")
    facts = full.environment["torch"]
    off = {**facts, "variables": {**facts["variables"], "NVIDIA_TF32_OVERRIDE": "0"}}
    full = full.model_copy(update={"environment": {"torch": off}})
    other = found(tmp_path, {"1n1g": jitter(130.0)}, benchmark="other", precision=precision)
    first, second = (group.measured[0] for group in cells.groups([full, other]))
    said = any("NVIDIA_TF32_OVERRIDE" in text for text in differences.differences(first, second))
    assert said == (precision == "fp32")


def test_cells_of_one_summary_that_ran_in_two_environments_have_no_verdict(tmp_path: Path) -> None:
    old = {"torch": "2.12.0", "transformers": "5.23.0", "cuda": "13.0", "driver": "580.10"}
    records = write_series(tmp_path, {"1n1g": jitter(100.0)}, framework_versions=old)
    one = summary.summarize([*records, *write_series(tmp_path, {"1n2g": jitter(190.0)})], repeats=5)
    cell = one.frameworks["torch"]["1n2g"]
    assert cell.ran_in and cell.ran_in["environment.framework.torch"] == "2.13.0"
    assert (cell.started, cell.ended) == ("2026-11-20T12:00:00Z", "2026-11-20T12:05:30Z")
    (pair,) = judged_pairs.judge(cells.groups([one]))
    assert pair.verdict == "not comparable" and "torch is 2.12.0 and 2.13.0" in pair.reason


def unequal(root: Path) -> list[cells.Group]:
    """Two frameworks, of which the faster one does not compute the same; and their runs with synthetic data."""
    proof = {
        "torch": EquivalenceVerdict(verdict="equal", largest_difference=1e-7, tolerance=1e-5, reason=None, covers=[]),
        "mxnet-horovod": EquivalenceVerdict(
            verdict="different", largest_difference=0.1, tolerance=1e-5, reason="0.1 off", covers=[]
        ),
    }
    summaries = []
    for name in ("both", "both__synthetic"):
        records = [
            path
            for framework, speed in (("mxnet-horovod", 200.0), ("torch", 100.0))
            for path in write_series(root, {"1n1g": jitter(speed)}, framework=framework, benchmark=name)
        ]
        summaries.append(summary.summarize(records, repeats=5))
    return cells.groups([summaries[0].model_copy(update={"equivalence": proof}), summaries[1]])


def test_unequal_frameworks_are_ranked_nowhere(tmp_path: Path) -> None:
    groups = unequal(tmp_path)
    for here in (groups[:1], groups[1:]):  # derived runs have no separate equivalence check
        best = asked_pairs.fastest(here)
        assert best and best.framework == "torch" and answers.headline(Scope(here)).startswith("torch trains")
        (pair,) = judged_pairs.judge(here, groups)
        assert (pair.what, pair.verdict) == ("mxnet-horovod (unequal) over torch", "not comparable")
        (cost,) = [topic.table(Scope(here)) for topic in TOPICS if topic.name == "cost"]
        assert cost and next(note for note in cost.notes if "best value" in note).startswith(
            "best value, samples for 1 CNY: torch 1n1g"
        )
    (mxnet, *_) = groups[0].frameworks
    alone = cells.groups(
        [groups[0].summary.model_copy(update={"frameworks": {mxnet: groups[0].summary.frameworks[mxnet]}})]
    )
    assert asked_pairs.fastest(alone) is None
    assert answers.headline(Scope(alone)).startswith("No figure is shown here: mxnet-horovod does not compute")


def test_the_verdict_follows_p_adjusted_for_its_family(tmp_path: Path) -> None:
    """The same pair is told apart alone, and not among seven of its family. Other families do not count."""
    noisy = [103.0, 96.0, 108.0, 100.0, 95.0]
    plain = [100.0, 103.0, 98.0, 101.0, 102.0]
    steps = [plain if index % 2 else [1.12 * value for value in noisy] for index in range(1, 9)]
    series = {f"1n{index}g": values for index, values in enumerate(steps, start=1)}
    two, eight = (
        cells.groups([found(tmp_path / name, {key: series[key] for key in list(series)[:count]})])
        for name, count in (("two", 2), ("eight", 8))
    )
    (alone,) = judged_pairs.judge(two)
    first, *others = judged_pairs.judge(eight)
    assert alone.p == first.p and alone.adjusted == alone.p and first.adjusted == pytest.approx(7 * (first.p or 0))
    assert (alone.verdict, first.verdict, first.tests, len(others)) == ("faster", "inconclusive", 7, 6)
    assert "(Holm over 7 pairs: p = 0." in first.reason
    scope = Scope(eight)
    table = TOPIC.table(scope)
    assert table and table_files.csv(table)["p_holm"][0] == pytest.approx(first.adjusted)
    assert "repeats would detect differences of 5 % in 9 of 10 cases" in " ".join(TOPIC.remarks(scope))


@pytest.mark.parametrize("other", [None, *OTHERS])
def test_two_a_a_runs_of_another_place_or_time_hide_nothing(tmp_path: Path, other: str | None) -> None:
    change: dict[str, Any] = OTHERS.get(other or "", {})
    options = {"options": {"compile": True}}
    quick = found(tmp_path, {"1n1g": jitter(104.0), "1n2g": jitter(180.0)}, benchmark="quick", **options)
    plain = found(tmp_path, {"1n1g": jitter(100.0)}, benchmark="plain", **change)
    again = found(tmp_path, {"1n1g": jitter(190.0)}, benchmark="plain__aa", **change)
    everything = cells.groups([quick, plain, again])
    verdict = {pair.what: pair.verdict for pair in judged_pairs.judge(everything[:1], everything)}
    assert verdict["1n2g over 1n1g"] == ("faster" if other else "inconclusive")
