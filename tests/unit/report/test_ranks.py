"""The rank that is slow is named, from its step without exchange and its matrix product, and equal ranks are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from report_fixture import write_record, write_series
from throughline.records import Summary, read_summary
from throughline.report.analysis import cells, slow_ranks, summary
from throughline.report.render import table_files
from throughline.report.render.plots import PAGE
from throughline.report.topic import Scope
from throughline.report.topics import ranks as topic
from throughline.report.topics import write_plots, write_tables

Factor = Callable[[int, int], float]
"""The factor on a rank's time in a repeat, both from 0."""


def noise(rank: int, repeat: int) -> float:
    """Return a factor that differs a little between all ranks and repeats, without a pattern."""
    return 1 + 0.002 * (((rank * 7 + repeat * 5) % 11) / 5 - 1)


def summarized(root: Path, name: str, topology: str, factor: Factor, gradient_sync: bool, **changes: Any) -> Summary:
    """Make a summary of repeats (usually three) whose ranks take `factor` times as long as usual."""
    repeats = changes.pop("repeats", 3)
    nodes, devices = map(int, topology.removesuffix("g").split("n"))
    options = {**changes.pop("options", {}), "gradient_sync": gradient_sync}
    paths = write_series(root, {topology: [1000.0] * repeats}, benchmark=name, options=options, **changes)
    for repeat, path in enumerate(paths):
        record = json.loads(path.read_text())
        slowest = max(factor(rank, repeat) for rank in range(nodes * devices))
        for number, rank in enumerate(record["ranks"]):
            rank["node"] = number // devices
            if gradient_sync:
                rank["matmul_flops_per_s"] = 50e12 / factor(number, repeat)
            else:
                rank["window_end_s"] *= factor(number, repeat) / slowest
        write_record(root, record)
    place = root / name / "bz32_fp32.json"
    summary.write(paths, place, repeats=repeats)
    return read_summary(place)


def scope(root: Path, factor: Factor, topology: str = "2n4g", **changes: Any) -> Scope:
    own = summarized(root, "bert", topology, factor, gradient_sync=True, **changes)
    alone = summarized(root, "bert__no_gradient_sync", topology, factor, gradient_sync=False, **changes)
    groups = cells.groups([own, alone])
    return Scope(groups[:1], groups)


def csv(of: Scope) -> pd.DataFrame:
    table = topic.csv(of)
    assert table
    return table_files.csv(table)


def slow_fifth(rank: int, repeat: int) -> float:
    return noise(rank, repeat) * (1.05 if rank == 5 else 1.0)


def test_a_slow_rank_is_named_with_its_node_and_device(tmp_path: Path) -> None:
    found = scope(tmp_path, slow_fifth)
    frame = csv(found)
    assert list(frame["rank"]) == list(range(8)) and list(frame["node"]) == [0] * 4 + [1] * 4
    slow = frame[frame["slow_in"].notna()]
    assert list(slow["rank"]) == [5] and list(slow["device"]) == [1]
    (line,) = slow.to_dict("records")
    assert line["slow_in"] == "step, matrix product" and line["waits_s"] == 0
    assert line["solo_step_distance"] == pytest.approx(1 / 1.05 - 1, abs=0.003)
    assert line["solo_step_distance_min"] < line["solo_step_distance"] < line["solo_step_distance_max"]
    assert line["matmul_distance"] == pytest.approx(1 / 1.05 - 1, abs=0.003) and line["matmul_p"] < 0.05
    assert line["solo_step_coverage"] == 0.75 and frame["waits_s"].max() == pytest.approx(0.05 * 0.256 / 1.05, rel=0.1)
    (note,) = topic.notes(found, found.groups[0])
    assert note.where == "torch 2n4g"
    assert note.text.startswith("rank 5 (node 1, device 1) is slow, and all others wait for it: its own step is 4.")
    assert "slower than 7 others (range of the others -0." in note.text


def test_equal_ranks_give_no_warning(tmp_path: Path) -> None:
    found = scope(tmp_path, noise)
    assert csv(found)["slow_in"].isna().all() and not list(topic.notes(found, found.groups[0]))


def test_a_rank_that_is_slow_only_once_gives_no_warning(tmp_path: Path) -> None:
    found = scope(tmp_path, lambda rank, repeat: noise(rank, repeat) * (1.3 if (rank, repeat) == (2, 1) else 1.0))
    assert not list(topic.notes(found, found.groups[0]))


def test_too_few_repeats_name_no_rank() -> None:
    """On three ranks that share two cores, one is always far behind, and another one each time."""
    behind = pd.DataFrame({1: [1.0, 1.0, 1.3], 2: [1.0, 1.0, 1.3]})
    assert slow_ranks.chance(behind, 2, less=True) == pytest.approx(1 / 9)
    assert slow_ranks.chance(behind, 0, less=True) == 1.0
    assert slow_ranks.chance(pd.DataFrame({1: range(128)}), 0, less=False) == 1 / 128


def test_a_single_repeat_gives_no_warning(tmp_path: Path) -> None:
    found = scope(tmp_path, slow_fifth, repeats=1)
    assert csv(found)["slow_in"].isna().all() and not list(topic.notes(found, found.groups[0]))
    assert csv(found)["solo_step_distance"].min() < -0.04, "the distance is told all the same"


def test_of_two_ranks_nobody_knows_which_is_wrong(tmp_path: Path) -> None:
    found = scope(tmp_path, lambda rank, repeat: 1.0 + 0.2 * rank, "1n2g")
    frame = csv(found)
    assert frame["solo_step_distance"].to_list() == pytest.approx([0.2, 1 / 1.2 - 1])
    assert frame["slow_in"].isna().all() and frame["solo_step_p"].isna().all()
    assert topic.table(found) is None and not list(topic.drawings(found)), "the page has no room for what tells nothing"


def test_steps_over_unequal_numbers_of_tokens_have_no_verdict(tmp_path: Path) -> None:
    found = scope(tmp_path, slow_fifth, options={"remove_padding": True})
    (slow,) = [standing for standing in found.ranks if standing.slow]
    assert slow.slow == ["matrix product"] and slow.solo and slow.solo.standing.p is None
    assert any("no verdict" in remark for remark in topic.remarks(found))


def test_records_that_tell_nothing_of_ranks_have_no_table(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n4g": [1000.0] * 3})
    summary.write(paths, tmp_path / "bert/bz32_fp32.json", repeats=3)
    assert '"ranks"' not in (tmp_path / "bert/bz32_fp32.json").read_text(), "an old summary stays as it was"
    old = Scope(cells.groups([read_summary(tmp_path / "bert/bz32_fp32.json")]))
    assert topic.csv(old) is None and topic.table(old) is None and not list(topic.drawings(old))


def test_the_page_shows_the_slowest_of_many_ranks_and_the_files_have_all(tmp_path: Path) -> None:
    found = scope(tmp_path, slow_fifth, "2n8g")
    table = topic.table(found)
    assert table and len(table.lines) == topic.SHOWN
    assert "5" in [line.entries[3].text for line in table.lines]
    assert any("ranks.csv has all" in remark for remark in topic.remarks(found))
    write_tables(found, tmp_path / "tables")
    assert len((tmp_path / "tables/ranks.csv").read_text().splitlines()) == 17
    write_plots(found, tmp_path / "plots")
    assert (tmp_path / "plots/bz32_fp32_ranks.svg").exists()
    (drawing,) = topic.drawings(found)
    assert "slow ranks: 5" in drawing.words
    texts = {text.get_text() for axes in drawing.draw(PAGE).axes for text in axes.texts}
    assert texts == {"5"}
