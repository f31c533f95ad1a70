"""Blocks that are for another kind of device are skipped, unless one of their files is asked for."""

from typing import Any

import pytest

from throughline import handover
from throughline.installation import choose
from throughline.launch import slurm_partition
from throughline.launch.auto_topologies import AutoTopologies
from throughline.study.config import load

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
