"""What `topologies: auto` means on a machine and on a partition of Slurm, and which blocks are skipped there."""

from __future__ import annotations

from typing import Any

import pytest

from throughline import handover
from throughline.files import UserError
from throughline.installation import choose
from throughline.launch import seen_devices, slurm_partition
from throughline.launch.auto_topologies import AutoTopologies, Devices, ladder
from throughline.messages import Gpus
from throughline.observe import environment
from throughline.study import runs
from throughline.study.config import ConfigError, load
from unit.launch.conftest import Program


def topologies(auto: AutoTopologies, **block: Any) -> list[str]:
    config = load([], {"benchmarks": {"b": {"topologies": "auto", **block}}}, auto_topologies=auto)
    assert runs.unpacked(runs.packed(config), "b")["benchmarks"]["b"]["topologies"] == config.block("b").topologies  # type: ignore[index]
    assert {str(spec.topology) for spec in runs.expand(config)} == set(config.block("b").topologies)
    return list(config.block("b").topologies)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with 6 cores and no GPU."""
    monkeypatch.setattr(environment, "cpu_cores", lambda: 6)
    monkeypatch.setattr(seen_devices, "seen", lambda *_: Gpus(kind=None, count=0, name=None, fp16=False))
    return monkeypatch


@pytest.mark.parametrize(
    ("nodes", "devices", "names"),
    [
        (1, 1, "1n1g"),
        (4, 8, "1n1g 1n2g 1n4g 1n8g 2n8g 4n8g"),
        (125, 8, "1n1g 1n2g 1n4g 1n8g 2n8g 4n8g 8n8g 16n8g 32n8g 64n8g 125n8g"),
    ],
)
def test_devices_double_up_to_all(nodes: int, devices: int, names: str) -> None:
    assert ladder(Devices(nodes, devices, "")) == names.split()


@pytest.mark.parametrize(
    ("block", "names"),
    [
        ({}, "1n1g 1n2g 1n4g 1n6g"),
        ({"threads": 2, "device": "cpu"}, "1n1g 1n2g 1n3g"),
        ({"threads": 99}, "1n1g"),
        ({"options": {"tensor_parallel": 2}}, "1n2g 1n4g 1n6g"),
        ({"scaling": "strong"}, "1n1g 1n2g 1n4g"),
    ],
)
def test_on_a_cpu_a_device_is_a_worker(machine: None, block: dict[str, Any], names: str) -> None:
    auto = AutoTopologies(variables={})
    assert topologies(auto, **block) == names.split()
    assert list(auto.lines) == [f"topologies: auto is {names.replace(' ', ', ')}: 6 CPU cores of this machine"]


def test_gpus_come_first_and_a_device_that_is_not_there_is_an_error(machine: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="sees none here"):
        topologies(AutoTopologies(variables={}), device="cuda")
    machine.setattr(seen_devices, "seen", lambda *_: Gpus(kind="cuda", count=4, name="H100", fp16=True))
    auto = AutoTopologies(variables={})
    assert topologies(auto) == ["1n1g", "1n2g", "1n4g"]
    assert list(auto.lines) == ["topologies: auto is 1n1g, 1n2g, 1n4g: 4 GPUs of this machine"]
    assert topologies(AutoTopologies(variables={}), device="cpu") == ["1n1g", "1n2g", "1n4g", "1n6g"]


def test_jobs_get_the_answer_of_the_first_call(machine: pytest.MonkeyPatch) -> None:
    variables: dict[str, str] = {}
    first = topologies(AutoTopologies(variables=variables))
    machine.setattr(environment, "cpu_cores", lambda: 64)
    assert topologies(AutoTopologies(variables=variables)) == first != topologies(AutoTopologies(variables={}))
    assert handover.get("topologies", None, variables) == {"auto 1 8": [1, 6, "6 CPU cores of this machine"]}


def test_a_block_that_auto_cannot_serve_is_an_error(machine: None) -> None:
    for hosts in ("simulated", ["first", "second"]):
        with pytest.raises(UserError, match=r"auto, and runs\.hosts is set"):
            topologies(AutoTopologies(variables={}), hosts=hosts)
    with pytest.raises(ConfigError, match="the 1 devices of 1n1g do not divide into replicas of 5"):
        topologies(AutoTopologies(variables={}), options={"tensor_parallel": 5}, threads=2)


NODES = ("n1|gpu*|idle|gpu:a100:8|64|x", "n2|gpu*|allocated|gpu:a100:4,nvme:2|48|x", "n3|gpu*|down|gpu:2|8|x")


@pytest.mark.parametrize(
    ("lines", "block", "names", "text"),
    [
        (NODES, {}, "1n1g 1n2g 1n4g 2n4g", "2 nodes of the default partition with 4 GPUs each"),
        (NODES, {"nodes_at_most": 1}, "1n1g 1n2g 1n4g", "with 4 GPUs each, of which runs.nodes_at_most takes 1"),
        (
            NODES,
            {"device": "cpu", "threads": 12},
            "1n1g 1n2g 1n4g 2n4g",
            "the default partition with 48 CPU cores each",
        ),
        (("n1|cpu*|idle|(null)|64|x",), {"device": "cpu", "threads": 32}, "1n1g 1n2g", "64 CPU cores each"),
        (("n1|cpu*|idle|(null)|64|x",), {"device": "cuda"}, None, "no node with GPUs of the default partition is up"),
    ],
)
def test_on_slurm_the_nodes_that_are_up_are_taken(
    program: Program, lines: tuple[str, ...], block: dict[str, Any], names: str | None, text: str
) -> None:
    program("sinfo", "\n".join(f"echo '{line}'" for line in lines))
    slurm_partition.nodes.cache_clear()
    auto = AutoTopologies(on_slurm=True, variables={})
    try:
        if names is None:
            with pytest.raises(UserError, match=text):
                topologies(auto, **block)
        else:
            assert topologies(auto, **block) == names.split()
            assert next(iter(auto.lines)).endswith(text)
    finally:
        slurm_partition.nodes.cache_clear()


BLOCKS: dict[str, Any] = {
    "small": {"only_on": "cpu"},
    "large": {"only_on": "cuda", "topologies": ["1n1g", "all"]},
    "both": {},
}
CARDS = choose.Facts((choose.Card("NVIDIA H100"),), "580")


@pytest.mark.parametrize(
    ("cards", "variables", "targets", "runs", "skipped"),
    [
        (False, {}, [], {}, ["large"]),
        (True, {}, [], {}, ["small"]),
        (True, {"CUDA_VISIBLE_DEVICES": ""}, [], {}, ["large"]),
        (True, {}, [], {"device": "cpu"}, ["large"]),
        (False, {}, ["results/large/bz32_fp32.json"], {}, []),
        (False, {}, ["results/large__aa/bz32_fp32/torch/1n1g/run1.json"], {}, []),
        (False, {}, ["results/report.html"], {}, ["large"]),
    ],
)
def test_the_device_decides_unless_a_file_is_named(
    monkeypatch: pytest.MonkeyPatch,
    cards: bool,
    variables: dict[str, str],
    targets: list[str],
    runs: dict[str, str],
    skipped: list[str],
) -> None:
    monkeypatch.setattr(choose, "facts", lambda: CARDS if cards else choose.Facts())
    monkeypatch.setattr(choose, "wanted", lambda: "auto")
    blocks = load([], {"benchmarks": BLOCKS, "runs": runs}).benchmarks
    auto = AutoTopologies(variables=variables)
    assert list(auto.skipped(targets, blocks)) == skipped and len(auto.lines) == len(skipped)
    monkeypatch.undo()
    assert list(auto.skipped([], blocks)) == skipped, "a job has the answer of its call"
    assert list(handover.get("skipped", variables=variables)) == skipped


def test_on_slurm_the_partition_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_partition, "device", lambda partition: ("cuda" if partition == "gpu" else "cpu", ""))
    blocks = load([], {"benchmarks": BLOCKS}).benchmarks
    assert list(AutoTopologies(True, "gpu", {}).skipped([], blocks)) == ["small"]
    assert list(AutoTopologies(True, None, {}).skipped([], blocks)) == ["large"]


def test_skipped_blocks_are_checked_and_no_device_is_asked_for_them() -> None:
    asked: list[str] = []

    def auto(block: Any) -> list[str]:
        asked.append(block.only_on)
        return ["1n1g", "1n2g", "1n4g"]

    config = load([], {"benchmarks": BLOCKS}, auto_topologies=auto, skipped=lambda _: ["large"])
    assert (list(config.benchmarks), asked) == (["small", "both"], [])
    assert load([], {"benchmarks": BLOCKS}, auto_topologies=auto).block("large").topologies == ["1n1g", "1n4g"]
    wrong = {**BLOCKS, "large": {"only_on": "cuda", "batch": {"fp8": [8]}, "model": "resnet50"}}
    with pytest.raises(Exception, match="resnet50 has no fp8"):
        load([], {"benchmarks": wrong}, skipped=lambda _: ["large"])
