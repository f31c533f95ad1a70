"""The rank that is slow is named, from its step without exchange and its matrix product, and equal ranks are not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from report_fixture import frame, scoped, world_of, write_record, write_series
from throughline.records import Summary
from throughline.report.analysis import slow_ranks, summary
from throughline.report.render.plots import PAGE
from throughline.report.topic import Scope
from throughline.report.topics import ranks as topic
from throughline.report.topics import write_plots, write_tables

Factor = Callable[[int, int], float]
"""The factor on a rank's time in a repeat, both from 0."""


def noise(rank: int, repeat: int) -> float:
    """Return a factor that differs a little between all ranks and repeats, without a pattern."""
    return 1 + 0.002 * (((rank * 7 + repeat * 5) % 11) / 5 - 1)


def slow_fifth(rank: int, repeat: int) -> float:
    return noise(rank, repeat) * (1.05 if rank == 5 else 1.0)


def slow_once(rank: int, repeat: int) -> float:
    return noise(rank, repeat) * (1.3 if (rank, repeat) == (2, 1) else 1.0)


def summarized(root: Path, name: str, topology: str, factor: Factor, repeats: int, options: dict[str, Any]) -> Summary:
    """Make a summary of repeats whose ranks take `factor` times as long as usual."""
    world, gradient_sync = world_of(topology), options["gradient_sync"]
    paths = write_series(root, {topology: [1000.0] * repeats}, benchmark=name, options=options)
    for repeat, path in enumerate(paths):
        record = json.loads(path.read_text())
        slowest = max(factor(rank, repeat) for rank in range(world))
        for number, rank in enumerate(record["ranks"]):
            rank["node"] = number * int(topology[0]) // world
            if gradient_sync:
                rank["matmul_flops_per_s"] = 50e12 / factor(number, repeat)
            else:
                rank["window_end_s"] *= factor(number, repeat) / slowest
        write_record(root, record)
    return summary.summarize(paths, repeats)


def scope(root: Path, factor: Factor, topology: str = "2n4g", repeats: int = 3, **options: Any) -> Scope:
    return scoped(
        *(
            summarized(root, name, topology, factor, repeats, {**options, "gradient_sync": gradient_sync})
            for name, gradient_sync in (("bert", True), ("bert__no_gradient_sync", False))
        )
    )


def test_a_slow_rank_is_named_with_its_node_and_device(tmp_path: Path) -> None:
    found = scope(tmp_path, slow_fifth)
    ranks = frame(topic.csv(found))
    assert list(ranks["rank"]) == list(range(8)) and list(ranks["node"]) == [0] * 4 + [1] * 4
    (line,) = ranks[ranks["slow_in"].notna()].to_dict("records")
    assert (line["rank"], line["device"], line["slow_in"], line["waits_s"]) == (5, 1, "step, matrix product", 0)
    assert line["solo_step_distance"] == pytest.approx(1 / 1.05 - 1, abs=0.003)
    assert line["solo_step_distance_min"] < line["solo_step_distance"] < line["solo_step_distance_max"]
    assert line["matmul_distance"] == pytest.approx(1 / 1.05 - 1, abs=0.003) and line["matmul_p"] < 0.05
    assert line["solo_step_coverage"] == 0.75 and ranks["waits_s"].max() == pytest.approx(0.05 * 0.256 / 1.05, rel=0.1)
    (note,) = topic.notes(found, found.groups[0])
    assert note.where == "torch 2n4g"
    assert note.text.startswith("rank 5 (node 1, device 1) is 4.") and "(step, matrix product)" in note.text


@pytest.mark.parametrize(("factor", "repeats"), [(noise, 3), (slow_once, 3), (slow_fifth, 1)])
def test_equal_ranks_and_those_that_are_slow_once_give_no_warning(tmp_path: Path, factor: Factor, repeats: int) -> None:
    found = scope(tmp_path, factor, repeats=repeats)
    ranks = frame(topic.csv(found))
    assert ranks["slow_in"].isna().all() and not list(topic.notes(found, found.groups[0]))
    assert (ranks["solo_step_distance"].min() < -0.04) == (factor is slow_fifth), "the distance is told all the same"


def test_too_few_repeats_name_no_rank() -> None:
    """On three ranks that share two cores, one is always far behind, and another one each time."""
    behind = pd.DataFrame({1: [1.0, 1.0, 1.3], 2: [1.0, 1.0, 1.3]})
    assert slow_ranks.chance(behind, 2, less=True) == pytest.approx(1 / 9)
    assert slow_ranks.chance(behind, 0, less=True) == 1.0
    assert slow_ranks.chance(pd.DataFrame({1: range(128)}), 0, less=False) == 1 / 128


def test_of_two_ranks_nobody_knows_which_is_wrong(tmp_path: Path) -> None:
    found = scope(tmp_path, lambda rank, repeat: 1.0 + 0.2 * rank, "1n2g")
    ranks = frame(topic.csv(found))
    assert ranks["solo_step_distance"].to_list() == pytest.approx([0.2, 1 / 1.2 - 1])
    assert ranks["slow_in"].isna().all() and ranks["solo_step_p"].isna().all()
    assert topic.table(found) is None and not list(topic.drawings(found)), "the page has no room for what tells nothing"


def test_steps_over_unequal_numbers_of_tokens_have_no_verdict(tmp_path: Path) -> None:
    found = scope(tmp_path, slow_fifth, remove_padding=True)
    (slow,) = [standing for standing in found.ranks if standing.slow]
    assert slow.slow == ["matrix product"] and slow.solo and slow.solo.standing.p is None
    table = topic.table(found)
    assert table and any("no verdict" in note for note in table.notes)


def test_the_page_shows_the_slowest_of_many_ranks_and_the_files_have_all(tmp_path: Path) -> None:
    found = scope(tmp_path, slow_fifth, "2n8g")
    table = topic.table(found)
    assert table and len(table.lines) == topic.SHOWN
    columns = [column.heading for column in table.columns]
    assert "5" in [line.entries[columns.index("rank")].text for line in table.lines]
    assert any("ranks.csv has all" in note for note in table.notes)
    write_tables(found, tmp_path / "tables")
    assert len((tmp_path / "tables/ranks.csv").read_text().splitlines()) == 17
    write_plots(found, tmp_path / "plots")
    assert (tmp_path / "plots/bz32_fp32_ranks.svg").exists()
    (drawing,) = topic.drawings(found)
    assert {text.get_text() for axes in drawing.draw(PAGE).axes for text in axes.texts} == {"5"}
