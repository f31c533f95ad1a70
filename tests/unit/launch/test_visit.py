"""A visit of an acceptance, with a launcher that only notes what it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from throughline import records
from throughline.files import UserError
from throughline.launch import launcher, visit
from throughline.launch.request import RunRequest
from throughline.study import acceptance
from throughline.study.acceptance import Fleet, Measurement
from throughline.study.config import Config

CPU, GPUS = Fleet((0, 1), 1, "cpu"), Fleet((0, 3), 2, "cuda", hosts="ssh")


def first_visit(fleet: Fleet) -> tuple[Path, list[Measurement]]:
    file, made = next(iter(acceptance.asked(Config(), fleet).visits().items()))
    return Path(file), made


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """What the launcher is asked for. A record counts as whole if it holds the specification."""
    requests: list[RunRequest] = []

    def run(request: RunRequest) -> dict[str, Any]:
        requests.append(request)
        if "matmul" in str(request.record) and not (tmp_path / "mended").exists():
            raise UserError("the product failed")
        request.record.parent.mkdir(parents=True, exist_ok=True)
        request.record.write_text(request.spec.canonical)
        return {"status": "ok"}

    def read(path: str, spec: Any) -> None:
        if not Path(path).is_file() or Path(path).read_text() != spec.canonical:
            raise UserError("another one's")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "run", run)
    monkeypatch.setattr(records, "read_run_of", read)
    return requests


def test_a_failure_leaves_the_rest_and_the_next_visit_makes_only_what_is_missing(
    asked: list[RunRequest], tmp_path: Path
) -> None:
    file, made = first_visit(CPU)
    with pytest.raises(UserError, match=r"matmul/run1\.json failed; 2 of 3 measurements are there"):
        visit.visit(made, file)
    assert [request.spec.model for request in asked] == ["bert-tiny", "matmul", "vector"]
    assert {request.target for request in asked} == {"results/acceptance/node0/visit1.json"}
    asked.clear()
    (tmp_path / "mended").touch()
    done = visit.visit(made, file)
    assert [request.spec.model for request in asked] == ["matmul"]
    assert done["records"] == [measured.record for measured in made]
    assert not list(file.parent.glob(".*")), "a finished visit leaves no note, so a forced one measures everything"
    asked.clear()
    visit.visit(made, file)
    assert len(asked) == 3


def test_what_another_specification_has_left_is_measured_again(asked: list[RunRequest], tmp_path: Path) -> None:
    file, made = first_visit(CPU)
    with pytest.raises(UserError):
        visit.visit(made, file)
    Path(made[0].record).write_text("another")
    asked.clear()
    (tmp_path / "mended").touch()
    visit.visit(made, file)
    assert [request.spec.model for request in asked] == ["bert-tiny", "matmul"]


def test_a_visit_that_is_stopped_ends_at_once(asked: list[RunRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(request: RunRequest) -> dict[str, Any]:
        asked.append(request)
        raise launcher.Stopped("stopped from outside")

    monkeypatch.setattr(launcher, "run", stopped)
    file, made = first_visit(CPU)
    with pytest.raises(launcher.Stopped):
        visit.visit(made, file)
    assert len(asked) == 1


def test_devices_are_measured_alone_on_their_host(asked: list[RunRequest], tmp_path: Path) -> None:
    (tmp_path / "mended").touch()
    Path("results").mkdir()
    Path(acceptance.LOCAL).write_text(json.dumps({"nodes": {"0": "first", "3": "me@second"}}))
    made = acceptance.asked(Config(), GPUS).visits()
    visit.visit(made["results/acceptance/node3/visit1.json"], Path("results/acceptance/node3/visit1.json"))
    alone = {(str(request.record.parent), request.visible) for request in asked if request.spec.model == "vector"}
    assert alone == {(f"results/acceptance/node3/device{device}/memory", (device,)) for device in (0, 1)}
    assert {tuple(request.hosts) for request in asked} == {("me@second",)}
    assert all(request.side_by_side for request in asked)
    pair = made["results/acceptance/pair_0_3/visit1.json"]
    request = visit.request_of(pair[0], Path("x"), {})
    assert (request.hosts, request.visible) == (["first", "me@second"], None)


def test_a_node_without_a_name_is_an_error(asked: list[RunRequest]) -> None:
    made = acceptance.asked(Config(), GPUS).measurements()
    with pytest.raises(UserError, match="the name of node 0"):
        visit.request_of(made[0], Path("x"), {})


@pytest.mark.parametrize("fleet", [CPU, GPUS, Fleet((0, 1), 2, "cuda", hosts="simulated")])
def test_a_visit_is_read_as_it_was_written(fleet: Fleet) -> None:
    for made in acceptance.asked(Config(), fleet).visits().values():
        assert acceptance.read_visit(acceptance.visit_text(made)) == made


def test_simulated_nodes_have_gpus_of_their_own() -> None:
    made = acceptance.measurements(Config(), Fleet((0, 1), 2, "cuda", hosts="simulated"))
    seen = {str(measured.place): measured.visible for measured in made}
    assert seen == {
        "node 0, GPU 0": (0,),
        "node 0, GPU 1": (1,),
        "node 0": (0, 1),
        "node 1, GPU 0": (2,),
        "node 1, GPU 1": (3,),
        "node 1": (2, 3),
        "nodes 0 and 1": None,
    }
