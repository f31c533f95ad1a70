"""Predictions: what they are made from, and that no reader takes them for measurements."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from report_fixture import group_of, read_csv, write_series, write_summary
from throughline.files import read_json, write_json
from throughline.records import Predictions, read_predictions, read_summary
from throughline.report.analysis import predictions, summary
from throughline.report.render import page
from throughline.report.render.plots import PAGE, svg
from throughline.report.topic import Scope
from throughline.report.topics import throughput, write_tables
from throughline.report.topics.predictions import TOPIC

SPEEDS = {"1n1g": 150.0, "1n8g": 1060.0, "2n8g": 1990.0, "4n8g": 3800.0}
ASKED = ["8n8g", "4n8g", "128n8g"]
WITHOUT = {"benchmark": "bert__no_gradient_sync", "options": {"gradient_sync": False}}


def place(root: Path, speeds: dict[str, float] = SPEEDS, terms: summary.Terms | None = None, **changes: object) -> Path:
    return write_summary(write_series(root / "results", speeds, **changes), terms=terms)


def derived(own: Path, *extras: Path, asked: list[str] = ASKED) -> Predictions:
    made_from = {path.parent.name: path for path in extras}
    return predictions.derive({own.name: own}, made_from, predictions.Asked(topologies=asked))


def scope_of(own: Path, made: Predictions) -> Scope:
    group = group_of(read_summary(own))
    return Scope([group], [group], predictions=made)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return place(tmp_path_factory.mktemp("predictions"))


@pytest.fixture(scope="module")
def made(own: Path) -> Predictions:
    alone, unread = ({name: speed * times for name, speed in SPEEDS.items()} for times in (1.05, 1.02))
    root, synthetic = own.parents[2], {"benchmark": "bert__synthetic", "options": {"data": "synthetic"}}
    return derived(own, place(root, alone, **WITHOUT), place(root, unread, **synthetic))


def test_measured_topologies_are_not_predicted_and_the_file_says_what_it_is_made_of(
    made: Predictions, tmp_path: Path
) -> None:
    (series,) = made.series
    assert [cell.topology for cell in series.predicted] == ["8n8g", "128n8g"]
    assert [point.topology for point in series.measured] == list(SPEEDS)
    assert [point.compute_s is None for point in series.measured] == [True, False, False, False]
    last = series.measured[-1]
    assert last.global_batch == 1024 and last.step_s[0] == pytest.approx(1024 / 3800)
    assert last.compute_s == pytest.approx(1024 / (3800 * 1.05))
    assert last.input_s == pytest.approx(1024 / 3800 * (1 - 1 / 1.02))
    assert set(made.made_from) == {"bz32_fp32.json", "bert__no_gradient_sync", "bert__synthetic"}
    for cell in series.predicted:
        assert cell.low < cell.samples_per_s < cell.high
        assert sum(cell.terms.values()) == pytest.approx(cell.step_s)
    write_json(tmp_path / "predictions.json", made.model_dump(by_alias=True))
    assert read_predictions(tmp_path / "predictions.json") == made


def test_the_spread_of_ranks_that_work_alone_becomes_waiting(tmp_path: Path) -> None:
    """The ranks of the extra `no_gradient_sync` differ by 2 % to either side of their mean, in every repeat."""
    own, extra = place(tmp_path), place(tmp_path, **WITHOUT)
    assert derived(own, extra).series[0].measured[-1].rank_spread == 0
    content = read_json(extra)
    for cell in content["frameworks"]["torch"].values():
        cell["ranks"] = [
            {"rank": rank, "node": 0, "device": rank, "matmul_flops_per_s": None,
             "solo_step_s": [0.27 * (1 + 0.02 * (-1) ** rank)] * 5}
            for rank in range(cell["world_size"])
        ]  # fmt: skip
    write_json(extra, content)
    (series,) = derived(own, extra).series
    assert series.measured[-1].rank_spread == pytest.approx(0.02, rel=0.05)
    assert all(cell.terms["waiting"] > 0 for cell in series.predicted)


def test_every_place_with_a_predicted_figure_says_so(own: Path, made: Predictions, tmp_path: Path) -> None:
    scope = scope_of(own, made)
    write_tables(scope, tmp_path)
    (first, *_) = read_csv(tmp_path / "predictions.csv")
    figures = {key for key, value in first.items() if re.fullmatch(r"[\d.]+", value) and key != "batch"}
    assert len(figures) > 10 and all(key.startswith("predicted_") for key in figures)
    assert first["predicted_devices"] == "64" and "8n8g" not in (tmp_path / "throughput.csv").read_text()
    lines = [line for line in (tmp_path / "predictions.md").read_text().splitlines() if "8n8g" in line]
    assert lines and all("predicted" in line.lower() for line in lines)
    drawn = svg(next(iter(throughput.drawings(scope))).draw(PAGE), PAGE)
    assert "stroke-dasharray" in drawn and "predicted " in drawn
    shown = TOPIC.table(scope)
    assert shown and all("predicted" in sentence for sentence in shown.notes)
    near, far = predictions.lines(made)
    assert "extrapolation" not in near
    assert "predicted" in far and "extrapolation to 32 times as many devices as were measured" in far


@pytest.mark.slow
def test_the_page_shows_them_apart(own: Path, made: Predictions) -> None:
    path, root = own.parent / "predictions.json", own.parents[1]
    write_json(path, made.model_dump(by_alias=True))
    text, without = (
        page.render(page.collect(root, [own], predictions=files), [], None, root / "report.html")
        for files in ([path], [])
    )
    assert "Predicted, not measured" in text and "8n8g (predicted)" in text and "8n8g" not in without


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"speeds": {"1n1g": 150.0}}, "only 1n1g was measured"),
        ({"options": {"gradient_sync": False}}, "do not exchange gradients"),
        ({"hosts": "simulated", "speeds": {"2n1g": 150.0}}, "simulated"),
        ({"beside": {"loader_stall_share": 0.3}}, "wait 30 % of the window for data"),
    ],
)
def test_where_the_model_does_not_hold_it_says_why(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    own = place(tmp_path, **changes)  # type: ignore[arg-type]
    made = derived(own)
    (series,) = made.series
    assert not series.predicted and why in series.not_predicted[0].why
    table = TOPIC.table(scope_of(own, made))
    assert table and any(why in note and "8n8g, " in note and "no prediction" in note for note in table.notes)


def test_a_fixed_global_batch_stays_the_same(tmp_path: Path) -> None:
    (series,) = derived(place(tmp_path, scaling="strong", batch=4096)).series
    assert {point.global_batch for point in (*series.measured, *series.predicted)} == {4096}


def test_names_below_the_ticks_leave_each_other_room(own: Path) -> None:
    """With seven numbers of devices on one logarithmic axis, some ticks have no name. The first and the last have."""
    far = derived(own, asked=["8n8g", "16n8g", "128n8g"])
    figure = throughput.plot(group_of(read_summary(own)), PAGE, predicted=far.series)
    (axes, *_) = figure.axes
    figure.draw_without_rendering()
    names = [label for label in axes.get_xticklabels() if "\n" in label.get_text()]
    assert names[0].get_text() == "1\n1n1g" and names[-1].get_text() == "1024\n128n8g"
    boxes = [label.get_window_extent() for label in names]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_hours_and_price_of_the_whole_training(tmp_path: Path) -> None:
    prices = '{"prices": {"V100": {"per_hour": 2.5, "currency": "EUR"}}, "total_samples": 1200000000}'
    own = place(tmp_path, terms=summary.read_terms(prices))
    write_tables(scope_of(own, derived(own)), tmp_path / "tables")
    first, *_ = read_csv(tmp_path / "tables/predictions.csv")
    hours, least, most = (float(first[f"predicted_task_hours{end}"]) for end in ("", "_at_least", "_at_most"))
    assert hours == pytest.approx(1.2e9 / float(first["predicted_samples_per_s"]) / 3600)
    assert least == pytest.approx(1.2e9 / float(first["predicted_samples_per_s_at_most"]) / 3600)
    assert least < hours < most
    assert float(first["predicted_task_price"]) == pytest.approx(hours * 64 * 2.5)
