"""An acceptance in archives: packed without names, derived again by a check, and compared place by place."""

import json
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from throughline import commands
from throughline.acceptance import verdict
from throughline.archive import check, compare, pack, regress
from throughline.files import write_json, write_text
from throughline.records import SCHEMA, read_compared
from throughline.records.acceptance import unfinished
from throughline.records.compared import ComparedAcceptance
from throughline.report.render import acceptance as shown
from throughline.report.render import compared as compare_page
from throughline.report.render.page import write_acceptance, write_comparison
from throughline.study.acceptance import LOCAL, PAIRS, RESULT, STANDINGS, Measurement
from unit.acceptance import fleets
from unit.archive.test_archive import Files, packed, with_value

RUN, OTHER = "results/acceptance/node2/device1/matmul/run1", "results/acceptance/node1/device1/matmul/run"
VISIT, DONE = "results/acceptance/node2/visit1.json", "results/acceptance/node1/visit1.json"
NOTE, TEXT = str(unfinished(VISIT)), "results/acceptance.txt"
Speed = fleets.Share
Change = Callable[[Files], Files]


def equal(_: Measurement) -> float:
    return 1.0


def without_samples(_: Measurement, record: dict[str, Any]) -> None:
    record["telemetry"] = []


def accepted(
    folder: Path,
    speed: Speed = equal,
    seed: int = 1,
    numbering: str | None = "0a1b",
    change: Callable[[Path], None] = lambda _: None,
    away: dict[int, str] | None = None,
    **how: Any,
) -> Path:
    """Make an acceptance of three nodes with two devices each, and return its archive. change: before the verdict."""
    made = fleets.asked(**{"nodes": 3, **how})
    made = replace(made, fleet=replace(made.fleet, numbering=numbering))
    chance = random.Random(seed)
    noisy = {measured.record: speed(measured) * (1 + chance.gauss(0, 0.001)) for measured in made.measurements()}
    fleets.write(made, folder, speed=lambda measured: noisy[measured.record], change=without_samples)
    for measured in made.measurements():
        record = json.loads((folder / measured.record).read_text())
        log = f"# again: snakemake --force {measured.visit}\noutcome: {record['samples_per_s']:.1f} x/s over 10 steps\n"
        (folder / measured.log).write_text(log)
        (folder / measured.record).with_suffix(".telemetry.csv").write_text("node,second\n")
    change(folder)
    judged = verdict.judge(made, folder, away or {})
    write_json(folder / RESULT, judged.model_dump(by_alias=True))
    write_text(folder / "results/acceptance.txt", verdict.paragraph(judged) + "\n")
    write_acceptance(judged, folder / "results/acceptance.html")
    shown.write(judged, folder / STANDINGS, folder / PAIRS)
    write_json(folder / LOCAL, {"nodes": dict(enumerate(["violet", "indigo", "blue", "green"]))})
    (folder / "results/report.html").write_text("<p>nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pack.write(Path("results/archive.zip"), Path("results/report.html"), [], {}, [], Path(RESULT))
    return folder / "results/archive.zip"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return accepted(tmp_path_factory.mktemp("then"))


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same fleet three months later (`later`)."""
    return accepted(tmp_path_factory.mktemp("now"), later, seed=2).parents[1]


def content(archive: Path) -> Files:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def refused(folder: Path) -> None:
    """The first node job of node 2 has not ended: one of its GPUs was refused."""
    made = json.loads((folder / VISIT).read_text())["records"]
    broken = [{"node": 2, "device": 1, "fault": "has 3 uncorrected ECC errors"}]
    (folder / VISIT).unlink()
    (folder / f"{RUN}.json").unlink()
    failed = {f"{RUN}.json": {"reason": "refused", "broken": broken}}
    made.remove(f"{RUN}.json")
    write_json(folder / NOTE, {"schema": SCHEMA, "records": made, "failed": failed})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of an archive whose verdict rests on a refused GPU and a node that is away. No record says either."""
    return content(accepted(tmp_path_factory.mktemp("refused"), change=refused, away={0: "it is down"}))


def faults(files: Files, folder: Path) -> str:
    return "\n".join(map(str, check.check(packed(files, folder / "a.zip")).differences))


@pytest.mark.slow
def test_an_acceptance_is_packed_without_names_and_holds(archive: Path, files: Files, tmp_path: Path) -> None:
    packed_files, found = content(archive), check.check(archive)
    assert not found.differences
    assert found.counts["records"] == sum(name.endswith(".json") and "/run" in name for name in packed_files) > 100
    assert LOCAL not in packed_files and not any(b"violet" in text for text in packed_files.values())
    assert faults(files, tmp_path) == ""
    verdict = json.loads(files[RESULT])
    assert verdict["verdict"] == "outliers" and [node["figures_of"] for node in verdict["away"]] == ["2026-11-20"]


def without(name: str) -> Change:
    return lambda files: {other: text for other, text in files.items() if other != name}


def changed(name: str, change: Callable[[Any], Any]) -> Change:
    return lambda files: with_value(files, name, change)


def figure(share: float) -> Callable[[Any], None]:
    def change(record: Any) -> None:
        record["figures"][0]["value"] *= share

    return change


def median(acceptance: Any) -> None:
    acceptance["figures"][0]["standings"][0]["median"] *= 1.01


def endless(acceptance: Any) -> None:
    acceptance["asked"]["fleet"]["nodes"] = list(range(100_000))


DAMAGES: dict[str, tuple[Change, str]] = {
    "a figure of a record": (changed(f"{OTHER}1.json", figure(1.01)), f"{RESULT}: figures"),
    "a figure of the verdict": (changed(RESULT, median), ".median: it states"),
    "the verdict": (changed(RESULT, lambda value: value.update(verdict="fit")), "verdict: it states"),
    "who was away": (changed(RESULT, lambda value: value.pop("away")), f"{RESULT}: summary"),
    "the records of a node job": (changed(DONE, lambda value: value["records"].pop()), "visit1.json: records"),
    "the records of a node job that did not end": (
        changed(NOTE, lambda value: value["records"].append("another")),
        f"{NOTE}: records",
    ),
    "an empty node job": (changed(NOTE, lambda value: value.clear()), f"{RESULT}: it cannot be derived"),
    "no refusal": (without(NOTE), f"{RESULT}: findings"),
    "no record": (without(f"{OTHER}1.json"), "missing"),
    "no verdict": (without(RESULT), "lacks the verdict"),
    "one record more": (lambda files: files | {f"{OTHER}9.json": files[f"{OTHER}1.json"]}, "does not ask for this"),
    "a log of another run": (lambda files: files | {f"{OTHER}1.log": files[f"{OTHER}2.log"]}, "log of another run"),
    "the paragraph": (lambda files: files | {TEXT: b"All is well.\n"}, f"{TEXT}: line 1: another line"),
    "a table": (
        lambda files: files | {STANDINGS: files[STANDINGS].replace(b"node 2", b"node 1", 1)},
        f"{STANDINGS}: line 6: another line",
    ),
    "an endless fleet": (changed(RESULT, endless), "more than 1,000,000 measurements"),
    "no question": (changed(RESULT, lambda value: value.update(asked={"fleet": 1})), "it cannot be derived"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_changed_left_out_or_added_is_found(damage: str, files: Files, tmp_path: Path) -> None:
    change, named = DAMAGES[damage]
    assert named in faults(change(files), tmp_path)


@pytest.mark.slow
def test_short_names_of_nodes_are_masked_when_they_are_packed(tmp_path: Path) -> None:
    folder = accepted(tmp_path).parents[1]
    write_json(folder / LOCAL, {"nodes": {"0": "n1", "1": "g7", "2": "node9"}})
    log = folder / f"{RUN}.log"
    log.write_text(log.read_text() + "gloo: no answer from g7:29500, n1 waits\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pack.write(Path("results/archive.zip"), Path("results/report.html"), [], {}, [], Path(RESULT))
    with zipfile.ZipFile(folder / "results/archive.zip") as opened:
        assert opened.read(f"{RUN}.log").endswith(b"gloo: no answer from node1:29500, node0 waits\n")


def compared(folder: Path, archives: list[Path], output: Path) -> list[ComparedAcceptance]:
    compare.compare([], archives, output, folder / RESULT)
    return [one.acceptance for one in read_compared(output).archives if one.acceptance]


def later(measured: Measurement) -> float:
    """Three months later: every all-reduce is 4 % slower, and so is the matrix product of node 2, GPU 1."""
    slow = measured.what == "all-reduce" or (measured.what == "matmul" and measured.place.folder == "node2/device1")
    return 0.96 if slow else 1.0


def test_each_kind_is_compared_and_the_places_that_lost_most_are_named(
    archive: Path, now: Path, tmp_path: Path, capsys: Any
) -> None:
    (found,) = compared(now, [archive], tmp_path / "compare.json")
    assert found.numbered
    kinds = {(kind.what, kind.figure, kind.kind): kind for kind in found.kinds}
    slower = [kind for kind in kinds.values() if kind.verdict == "slower" and kind.ratio < 0.98]
    assert {kind.what for kind in slower} == {"all-reduce"}
    assert {kind.kind for kind in slower} == {"node", "pair", "link", "all"}
    latency = kinds["all-reduce", "latency", "pair"]
    assert latency.ours > latency.theirs and latency.ratio == pytest.approx(0.96, abs=0.01)
    product = kinds["matmul", "matmul", "device"]
    assert product.places == "all 6 devices" and product.ratio == pytest.approx(1, abs=0.005)
    assert [len(product.ours), len(product.worst)] == [6, 3]
    assert product.worst[0].place == "node 2, GPU 1" and product.worst[0].ratio == pytest.approx(0.96, abs=0.01)
    assert (
        kinds["step", "samples_per_s", "all"].places == "all nodes" and not kinds["step", "samples_per_s", "all"].worst
    )
    with pytest.raises(SystemExit) as ended:
        commands.main(["regress", str(tmp_path / "compare.json")])
    assert ended.value.code == 1
    assert "all 3 pairs: all-reduce (1,073,741,824) against archive.zip: slower: -" in capsys.readouterr().out


def test_an_equal_fleet_has_got_no_slower(archive: Path, tmp_path: Path) -> None:
    accepted(tmp_path, seed=3)
    compared(tmp_path, [archive], tmp_path / "compare.json")
    judged = regress.judge(read_compared(tmp_path / "compare.json"), 0.02)
    assert regress.status(judged) == 0 and len(judged) > 10


def test_numbers_of_another_cluster_are_not_matched(archive: Path, now: Path, tmp_path: Path) -> None:
    other = with_value(
        content(archive), RESULT, lambda acceptance: acceptance["asked"]["fleet"].update(numbering="ffff")
    )
    (found,) = compared(now, [packed(other, tmp_path / "a.zip")], tmp_path / "compare.json")
    assert not found.numbered and not any(kind.worst for kind in found.kinds)
    slow = {kind.places for kind in found.kinds if kind.verdict == "slower" and kind.ratio < 0.98}
    assert {"all 3 pairs", "all nodes"} <= slow


def test_a_fleet_of_another_size_and_other_work(archive: Path, tmp_path: Path) -> None:
    accepted(tmp_path, nodes=4, step_s=20.0, precision="fp16", repeats=1)
    (found,) = compared(tmp_path, [archive], tmp_path / "compare.json")
    assert "node 3" in found.only_here and not found.only_there
    kinds = {(kind.what, kind.kind): kind for kind in found.kinds}
    assert "topology is 4n2g here and 3n2g there" in kinds["step", "all"].because
    assert "precision is fp16 here and bf16 there" in kinds["matmul", "device"].because
    assert kinds["step", "device"].verdict != "not comparable"


def test_the_page_and_the_table(archive: Path, now: Path, tmp_path: Path) -> None:
    (found,) = compared(now, [archive], tmp_path / "compare.json")
    write_comparison(tmp_path / "compare.json", tmp_path / "compare.html")
    page = (tmp_path / "compare.html").read_text()
    assert "The acceptance compared with archive.zip" in page and "call the same nodes by the same numbers" in page
    assert re.search(r"node 2, GPU 1 -[34]\.", page)
    assert "Compared with archive.zip" not in page  # no benchmark is in both
    compare_page.write(
        tmp_path / "compare.json", *(tmp_path / f"{name}.csv" for name in ("cells", "machines", "kinds"))
    )
    lines = (tmp_path / "kinds.csv").read_text().splitlines()
    assert len(lines) == 1 + len(found.kinds)
    copies = [Path(copy(archive, tmp_path / f"{name}.zip")) for name in "abc"]
    compared(now, copies, tmp_path / "compare.json")
    write_comparison(tmp_path / "compare.json", tmp_path / "compare.html")
    page = (tmp_path / "compare.html").read_text()
    assert "The plot has the 10 of" in page and page.count('id="history-title"') == 1
