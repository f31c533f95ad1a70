"""Collective operations with real ranks: each does what its name says, all ranks get the same figures, and after a run
the operations on its gradients are measured alone."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rank_helpers
import training_fixtures
from framework_lab import ran
from throughline.workloads import in_torch_operations, in_torch_timed
from throughline.workloads.collectives.in_torch import Operation

HELPER = Path(__file__).with_name("torch_collectives.py")
AFTER = {
    "all-reduce": ([30, 32, 34, 36], [30, 32, 34, 36]),
    "all-gather": ([10, 11, 20, 21], [10, 11, 20, 21]),
    "reduce-scatter": ([30, 32], [34, 36]),
    "all-to-all": ([10, 11, 20, 21], [12, 13, 22, 23]),
}
"""Operation -> what two ranks hold after it. They began with 10, 11, ... and 20, 21, ..."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return rank_helpers.told(HELPER, tmp_path_factory.mktemp("collectives"), {2: 2})[2]


def test_older_versions_of_torch_have_the_operations_under_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dist, "all_gather_single")
    monkeypatch.delattr(dist, "reduce_scatter_single")
    of_2_11 = runpy.run_path(in_torch_operations.__file__)
    assert of_2_11["all_gather_single"] is dist.all_gather_into_tensor
    assert of_2_11["reduce_scatter_single"] is dist.reduce_scatter_tensor


@pytest.mark.parametrize("model", AFTER)
def test_an_operation_does_what_its_name_says(told: list[dict[str, Any]], model: str) -> None:
    assert tuple(one[model]["taken"] for one in told) == AFTER[model]
    assert [one[model]["moved"] for one in told] == [16, 16], "its bytes are those of the whole operation"
    first, second = (one[model]["figures"] for one in told)
    assert first == second, "the slowest rank counts on all"
    names = ["algorithm_bandwidth", "bus_bandwidth"]
    assert [(name, at) for name, at, _ in first] == [(name, at) for at in (16, 64) for name in names]
    rates = [value for _, _, value in first]
    assert rates[1] == pytest.approx(rates[0] * (1 if model == "all-reduce" else 0.5)), "two ranks"


def test_on_a_gpu_small_messages_are_replayed_as_a_cuda_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Operation.__new__(Operation)
    monkeypatch.setattr(
        Operation, "__getattr__", lambda self, name: {"at": torch.device("cuda"), "min_seconds": 1}[name]
    )
    graph, alone = object(), object()
    monkeypatch.setattr(in_torch_timed, "recorded", lambda call, at: graph)
    seconds = {id(graph): 40e-6, id(alone): 100e-6}
    monkeypatch.setattr(in_torch_timed, "together", lambda call, least, at: seconds[id(call)])
    assert network.seconds(alone, 1 << 22) == pytest.approx(40e-6 / in_torch_timed.RECORDED)
    assert "up to 4 MiB, a CUDA graph of 20 calls" in network.timer
    assert network.seconds(alone, (1 << 22) + 1) == 100e-6

    def refuse(call: Any, at: Any) -> None:
        raise RuntimeError("capture of NCCL is not supported\nC++ stack")

    monkeypatch.setattr(in_torch_timed, "recorded", refuse)
    assert network.seconds(alone, 1024) == 100e-6
    assert network.timer.endswith("no CUDA graph can hold it: capture of NCCL is not supported")


def test_a_step_s_messages_alone(tmp_path: Path) -> None:
    """After the window, the run measures DistributedDataParallel's buckets. Their bytes are those of all gradients."""
    options = {"data": "synthetic", "bucket_mb": 1}
    record = ran(training_fixtures.spec(topology="1n2g", options=options, network=True), tmp_path)
    assert record.status == "ok" and record.settings and record.network
    assert record.network.reason is None and (record.network.messages or 0) > 1 and record.network.seconds
    assert record.network.bytes_per_step == 4 * record.settings["parameters"]
