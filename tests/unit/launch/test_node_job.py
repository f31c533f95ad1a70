"""A node job of an acceptance, with a launcher that only notes what it is asked for."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from throughline import records
from throughline.files import UserError
from throughline.launch import launcher, node_job
from throughline.launch.request import RunRequest
from throughline.launch.supervision import Unfit
from throughline.launch.survey import TooFewGpus
from throughline.records.visit import unfinished
from throughline.spec import Topology
from throughline.study import acceptance
from throughline.study.acceptance import Fleet, Measurement
from throughline.study.config import Config

CPU, GPUS = Fleet((0, 1), 1, "cpu"), Fleet((0, 3), 2, "cuda", hosts="ssh")


def first_job(fleet: Fleet) -> tuple[Path, list[Measurement]]:
    file, made = next(iter(acceptance.asked(Config(), fleet).visits().items()))
    return Path(file), made


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """What the launcher is asked for. A record counts as whole if it holds the specification."""
    requests: list[RunRequest] = []

    def run(request: RunRequest) -> dict[str, Any]:
        requests.append(request)
        if "matmul" in str(request.record) and not (tmp_path / "fixed").exists():
            raise UserError("the product failed")
        request.record.parent.mkdir(parents=True, exist_ok=True)
        request.record.write_text(request.spec.canonical)
        return {"status": "ok", "reason": None}

    def read(path: str, spec: Any) -> SimpleNamespace:
        if not Path(path).is_file() or Path(path).read_text() != spec.canonical:
            raise UserError("another one's")
        written = datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)
        return SimpleNamespace(ended=written.isoformat())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "run", run)
    monkeypatch.setattr(records, "read_run_of", read)
    return requests


def test_a_failure_leaves_the_rest_and_the_next_call_makes_only_what_is_missing(
    asked: list[RunRequest], tmp_path: Path
) -> None:
    file, made = first_job(CPU)
    with pytest.raises(UserError, match=r"matmul/run1\.json failed; 2 of 3 measurements are there"):
        node_job.measure_all(made, file)
    assert [request.spec.model for request in asked] == ["bert-tiny", "matmul", "vector"]
    assert {request.target for request in asked} == {"results/acceptance/node0/visit1.json"}
    asked.clear()
    (tmp_path / "fixed").touch()
    done = node_job.measure_all(made, file)
    assert [request.spec.model for request in asked] == ["matmul"]
    assert done["records"] == [measured.record for measured in made]
    assert not unfinished(file).exists(), "a finished node job leaves no note, so a forced one measures everything"
    asked.clear()
    node_job.measure_all(made, file)
    assert len(asked) == 3


@pytest.mark.parametrize("old", [False, True])
def test_what_is_old_or_of_another_specification_is_measured_again(
    asked: list[RunRequest], tmp_path: Path, old: bool
) -> None:
    """A nightly acceptance must not take the figures of the night before."""
    file, made = first_job(CPU)
    with pytest.raises(UserError):
        node_job.measure_all(made, file)
    if old:
        os.utime(made[0].record, (time.time() - 24 * 3600,) * 2)
    else:
        Path(made[0].record).write_text("another")
    asked.clear()
    (tmp_path / "fixed").touch()
    node_job.measure_all(made, file)
    assert [request.spec.model for request in asked] == ["bert-tiny", "matmul"]


@pytest.mark.parametrize(("status", "again"), [("oom", True), ("invalid", True), ("unsupported", False)])
def test_an_outcome_that_may_change_is_tried_again(
    asked: list[RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, again: bool
) -> None:
    """Otherwise the node job would be over, and its run missing for ever."""
    (tmp_path / "fixed").touch()
    run = launcher.run

    def refused(request: RunRequest) -> dict[str, Any]:
        product = request.spec.model == "matmul"
        return run(request) | ({"status": status, "reason": "rank 0: no"} if product else {})

    monkeypatch.setattr(launcher, "run", refused)
    file, made = first_job(CPU)
    if again:
        with pytest.raises(UserError, match="2 of 3 measurements are there"):
            node_job.measure_all(made, file)
        product = next(measured.record for measured in made if measured.what == "matmul")
        assert records.read_unfinished(unfinished(file)).failed[product].reason == f"{status}: rank 0: no"
        monkeypatch.setattr(launcher, "run", run)
        asked.clear()
    node_job.measure_all(made, file)
    assert len(asked) == (1 if again else 3)


def test_a_node_job_that_is_stopped_ends_at_once(asked: list[RunRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(request: RunRequest) -> dict[str, Any]:
        asked.append(request)
        raise launcher.Stopped("stopped from outside")

    monkeypatch.setattr(launcher, "run", stopped)
    file, made = first_job(CPU)
    with pytest.raises(launcher.Stopped):
        node_job.measure_all(made, file)
    assert len(asked) == 1


def test_devices_are_measured_alone_on_their_host(asked: list[RunRequest], tmp_path: Path) -> None:
    (tmp_path / "fixed").touch()
    Path("results").mkdir()
    Path(acceptance.LOCAL).write_text(json.dumps({"nodes": {"0": "first", "3": "me@second"}}))
    made = acceptance.asked(Config(), GPUS).visits()
    node_job.measure_all(made["results/acceptance/node3/visit1.json"], Path("results/acceptance/node3/visit1.json"))
    alone = {(str(request.record.parent), request.visible) for request in asked if request.spec.model == "vector"}
    assert alone == {(f"results/acceptance/node3/device{device}/memory", (device,)) for device in (0, 1)}
    assert {tuple(request.hosts) for request in asked} == {("me@second",)}
    assert all(request.side_by_side for request in asked)
    pair = made["results/acceptance/pair_0_3/visit1.json"]
    request = node_job.request_of(pair[0], Path("x"), {})
    assert (request.hosts, request.visible) == (["first", "me@second"], None)
    Path(acceptance.LOCAL).unlink()
    with pytest.raises(UserError, match="the name of node 0"):
        node_job.request_of(pair[0], Path("x"), {})


@pytest.mark.parametrize("fleet", [CPU, GPUS, Fleet((0, 1), 2, "cuda", hosts="simulated")])
def test_a_node_job_is_read_as_it_was_written(fleet: Fleet) -> None:
    for made in acceptance.asked(Config(), fleet).visits().values():
        assert acceptance.read_visit(acceptance.visit_text(made)) == made


def test_simulated_nodes_have_gpus_of_their_own() -> None:
    made = acceptance.asked(Config(), Fleet((0, 1), 2, "cuda", hosts="simulated")).measurements()
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


ECC = "GPU 0 has 3 uncorrected ECC errors since the driver was loaded"


def place(words: str, fleet: Fleet = GPUS) -> Measurement:
    return next(made for made in acceptance.asked(Config(), fleet).measurements() if str(made.place) == words)


@pytest.mark.parametrize(
    ("words", "error", "reason", "broken"),
    [
        ("node 3, GPU 1", Unfit(0, [ECC]), "node 3 are not fit to be measured: GPU 1 has 3 uncorrected", [(3, 1)]),
        ("node 3", Unfit(0, [ECC]), "node 3 are not fit to be measured: GPU 0 has 3 uncorrected", [(3, 0)]),
        ("nodes 0 and 3", Unfit(1, [ECC]), "the GPUs of node 3 are not", [(3, 0)]),
        ("node 3", Unfit(0, ["GPU 0 could not remap a faulty row of its memory"]), "remap", [(3, 0)]),
        ("node 3", Unfit(0, ["GPU 0 is used by another process (17, 2.0 GiB)"]), "another process", []),
        ("node 3", TooFewGpus(Topology(1, 2), 2, 1), "needs 2 GPUs a machine, and there are 1", [(3, None)]),
        ("nodes 0 and 3", TooFewGpus(Topology(2, 2), 2, 1), "and there are 1", []),
        ("node 3", UserError("visit: rank 0: killed", why="its last\noutput"), "rank 0: killed (its last output)", []),
    ],
)
def test_a_reason_names_the_node_and_the_gpu_by_their_numbers(
    words: str, error: UserError, reason: str, broken: list[tuple[int, int | None]]
) -> None:
    """The run itself counts them from 0. What other processes do is no fault of a GPU."""
    failure = node_job.failure(place(words), error)
    assert reason in failure.reason
    assert [(one.node, one.device) for one in failure.broken] == broken


def test_a_reason_has_no_name_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm sorts the nodes of a job by their names, and we by their numbers."""
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    Path(acceptance.LOCAL).write_text(json.dumps({"nodes": {"0": "violet", "3": "me@indigo"}}))
    monkeypatch.setenv("THROUGHLINE_NODES", "indigo violet")
    failure = node_job.failure(place("nodes 0 and 3"), UserError("indigo is lost, node 1 is not"))
    assert failure.reason == "node3 is lost, node 0 is not"
    assert node_job.failure(place("nodes 0 and 3"), Unfit(0, [ECC])).broken[0].node == 3
