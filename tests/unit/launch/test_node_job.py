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
from throughline.messages import GpuFault
from throughline.records.acceptance import unfinished
from throughline.spec import Topology
from throughline.study import acceptance
from throughline.study.acceptance import Fleet, Measurement
from throughline.study.config import Config

CPU, GPUS = Fleet((0, 1), 1, "cpu"), Fleet((0, 3), 2, "cuda", hosts="ssh")


def first_job(fleet: Fleet) -> tuple[Path, list[Measurement]]:
    file, made = next(iter(acceptance.asked(Config(), fleet).visits.items()))
    return Path(file), made


class Launcher:
    """A launcher that only notes what it is asked for. product: the outcome of a matrix product, or why it fails."""

    def __init__(self) -> None:
        self.asked: list[RunRequest] = []
        self.product: dict[str, Any] | UserError = {"status": "ok", "reason": None}

    def run(self, request: RunRequest) -> dict[str, Any]:
        self.asked.append(request)
        outcome = self.product if request.spec.model == "matmul" else {"status": "ok", "reason": None}
        if isinstance(outcome, UserError):
            raise outcome
        request.record.parent.mkdir(parents=True, exist_ok=True)
        request.record.write_text(request.spec.canonical)
        return outcome

    def models(self) -> list[str]:
        """Return what was asked for since the last call."""
        models, self.asked = [request.spec.model for request in self.asked], []
        return models


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """A record counts as whole if it holds the specification."""

    def read(path: str, spec: Any) -> SimpleNamespace:
        if not Path(path).is_file() or Path(path).read_text() != spec.canonical:
            raise UserError("another one's")
        return SimpleNamespace(ended=datetime.fromtimestamp(Path(path).stat().st_mtime, UTC).isoformat())

    monkeypatch.chdir(tmp_path)
    noted = Launcher()
    monkeypatch.setattr(launcher, "run", noted.run)
    monkeypatch.setattr(records, "read_run_of", read)
    return noted


@pytest.mark.parametrize(
    ("product", "reason", "damage", "again"),
    [
        (UserError("the product failed"), "the product failed", None, ["matmul"]),
        (UserError("the product failed"), "the product failed", "old", ["bert-tiny", "matmul"]),
        (UserError("the product failed"), "the product failed", "another", ["bert-tiny", "matmul"]),
        ({"status": "oom", "reason": "rank 0: no"}, "oom: rank 0: no", None, ["matmul"]),
        ({"status": "invalid", "reason": "rank 0: no"}, "invalid: rank 0: no", None, ["matmul"]),
        ({"status": "unsupported", "reason": "rank 0: no"}, None, None, ["bert-tiny", "matmul", "vector", "disk"]),
    ],
)
def test_a_failure_leaves_the_rest_and_the_next_call_makes_what_is_missing_old_or_anothers(
    noted: Launcher, product: dict[str, Any] | UserError, reason: str | None, damage: str | None, again: list[str]
) -> None:
    """An outcome that may change is tried again, because otherwise its run would be missing for ever. A nightly
    acceptance must not take the figures of the night before. A finished node job measures everything again."""
    file, made = first_job(CPU)
    noted.product = product
    if reason:
        with pytest.raises(UserError, match=r"matmul/run1\.json failed; 3 of 4 measurements are there"):
            node_job.measure_all(made, file)
        record = next(measured.record for measured in made if measured.what == "matmul")
        assert records.read_unfinished(unfinished(file)).failed[record].reason == reason
    else:
        node_job.measure_all(made, file)
    assert {request.target for request in noted.asked} == {"results/acceptance/node0/visit1.json"}
    assert noted.models() == ["bert-tiny", "matmul", "vector", "disk"]
    if damage == "old":
        os.utime(made[0].record, (time.time() - 24 * 3600,) * 2)
    elif damage == "another":
        Path(made[0].record).write_text("another")
    noted.product = {"status": "ok", "reason": None}
    done = node_job.measure_all(made, file)
    assert noted.models() == again and not unfinished(file).exists()
    assert done["records"] == [measured.record for measured in made]


def test_a_node_job_that_is_stopped_ends_at_once(noted: Launcher) -> None:
    noted.product = launcher.Stopped("stopped from outside")
    file, made = first_job(CPU)
    with pytest.raises(launcher.Stopped):
        node_job.measure_all(made, file)
    assert noted.models() == ["bert-tiny", "matmul"]


def test_devices_are_measured_alone_on_their_host(noted: Launcher) -> None:
    Path("results").mkdir()
    Path(acceptance.LOCAL).write_text(json.dumps({"nodes": {"0": "first", "3": "me@second"}}))
    made = acceptance.asked(Config(), GPUS).visits
    node_job.measure_all(made["results/acceptance/node3/visit1.json"], Path("results/acceptance/node3/visit1.json"))
    alone = {(str(request.record.parent), request.visible) for request in noted.asked if request.spec.model == "vector"}
    assert alone == {(f"results/acceptance/node3/device{device}/memory", (device,)) for device in (0, 1)}
    assert {tuple(request.hosts) for request in noted.asked} == {("me@second",)}
    assert all(request.side_by_side for request in noted.asked)
    pair = made["results/acceptance/pair_0_3/visit1.json"]
    request = node_job.request_of(pair[0], Path("x"), {})
    assert (request.hosts, request.visible) == (["first", "me@second"], None)
    Path(acceptance.LOCAL).unlink()
    with pytest.raises(UserError, match="the name of node 0"):
        node_job.request_of(pair[0], Path("x"), {})


@pytest.mark.parametrize("fleet", [CPU, GPUS, Fleet((0, 1), 2, "cuda", hosts="simulated")])
def test_a_node_job_is_read_as_it_was_written(fleet: Fleet) -> None:
    for made in acceptance.asked(Config(), fleet).visits.values():
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


FAULT = "has 3 uncorrected ECC errors since the driver was loaded"
ECC = GpuFault(f"GPU 0 {FAULT}", 0, FAULT)


def place(words: str, fleet: Fleet = GPUS) -> Measurement:
    return next(made for made in acceptance.asked(Config(), fleet).measurements() if str(made.place) == words)


@pytest.mark.parametrize(
    ("words", "error", "reason", "broken"),
    [
        ("node 3, GPU 1", Unfit(0, [ECC]), "node 3 are not fit to be measured: GPU 1 has 3 uncorrected", [(3, 1)]),
        ("node 3", Unfit(0, [ECC]), "node 3 are not fit to be measured: GPU 0 has 3 uncorrected", [(3, 0)]),
        ("nodes 0 and 3", Unfit(1, [ECC]), "the GPUs of node 3 are not", [(3, 0)]),
        ("node 3", Unfit(0, [GpuFault("GPU 0 is used by another process (17, 2.0 GiB)", 0)]), "another process", []),
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
