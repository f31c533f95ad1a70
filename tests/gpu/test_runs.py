"""Whole runs on GPUs that compute nothing: the ranks on a fake CUDA driver, telemetry on a fake NVML."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cases
import lane
import pytest

import nvml_double
import training_fixtures
from framework_lab import ROOT, Lab
from throughline import records

SYNTHETIC = {"data": "synthetic"}
SEARCH = """
import sys
from pathlib import Path
from throughline import records
from throughline.checks import max_batch
from throughline.study.runs import read_spec
max_batch.FINENESS = 2
found = max_batch.find([read_spec(sys.argv[1])], None, {"torch": sys.argv[2]}, Path("results/tries"))
records.write(records.MaxBatch, found, Path("results/largest.json"))
"""


class Dry:
    """A copy of the sources in which this machine may have GPUs, and the interpreter of ranks that see the fake
    driver's.

    trusting, probing: see lane.believe.
    """

    def __init__(self, folder: Path, trusting: bool = True, probing: bool = False) -> None:
        self.lab, self.nvml, self.python = Lab(folder), nvml_double.build(folder / "nvml"), lane.wrapper(folder)
        shutil.copytree(ROOT / "resources", folder / "resources")
        lane.believe(folder / "src/throughline", trusting, probing)

    def variables(self, **more: str) -> dict[str, str]:
        return nvml_double.variables(self.nvml, count=lane.DEVICES) | more

    def launch(self, *, more: dict[str, str] | None = None, **changes: Any) -> tuple[str, dict[str, Any]]:
        """Make a run; return what the launcher said, and the record."""
        changes = {"device": "cuda", "steps": {"warmup": 4, "timed": 6}} | changes
        variables = self.variables(**more or {})
        done, path = self.lab.launch("torch", "--python", str(self.python), variables=variables, **changes)
        log = path.with_suffix(".log")
        said = done.stderr + (log.read_text() if log.exists() else "")
        assert path.exists(), said
        return said, json.loads(path.read_text())

    def run(self, **changes: Any) -> records.RunRecord:
        """Make a run that must succeed."""
        said, record = self.launch(**changes)
        assert record["status"] == "ok", said
        return records.RunRecord.model_validate(record)


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Dry:
    return Dry(tmp_path_factory.mktemp("dry"))


@pytest.mark.parametrize("topology", ["1n1g", "1n2g", "1n8g"])
def test_a_run_ends_in_a_whole_record(dry: Dry, topology: str) -> None:
    # Two seconds and more, because telemetry takes a sample each second. Eight ranks share the machine's cores.
    ranks = int(topology[2])
    timed = 800 if ranks < lane.DEVICES else 40
    record = dry.run(topology=topology, precision="bf16", steps={"warmup": 4, "timed": timed}, options=SYNTHETIC)
    assert record.device and record.device.kind == "cuda" and record.device.count == lane.DEVICES
    assert record.device.name == "NVIDIA H100 80GB HBM3"
    assert len(record.environment["gpus"]) == ranks
    assert record.memory and record.memory.device_total_bytes == 80 << 30
    assert record.samples_per_s and record.steps_timed == timed
    assert record.telemetry and len(record.telemetry[0].devices) == ranks
    assert all(card.energy_j and card.power_w for card in record.telemetry[0].devices)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("bert-tiny", {"precision": "fp16"}),
        ("bert-tiny", {"precision": "bf16", "options": {"remove_padding": True}}),
        ("bert-tiny", {"precision": "fp16", "topology": "1n2g", "options": {"cuda_graph": "step", "clip": "norm"}}),
        ("gpt2-tiny", {"precision": "bf16", "topology": "1n2g", "options": {**SYNTHETIC, "sharding": "full_shard"}}),
        ("resnet-tiny", {"precision": "bf16", "options": SYNTHETIC, "image": 64, "classes": 100}),
    ],
    ids=["fp16", "without padding", "recorded", "sharded", "pictures"],
)
def test_forms_end_in_a_record(dry: Dry, model: str, changes: dict[str, Any]) -> None:
    record = dry.run(model=model, **changes)
    assert record.peak_memory_bytes
    assert record.settings
    assert record.settings["cuda_graph"] == changes.get("options", {}).get("cuda_graph", "none")


@pytest.mark.parametrize(
    ("topology", "options", "changes"),
    [
        ("1n2g", {"sharding": "full_shard"}, {"precision": "bf16"}),
        ("1n2g", {"sharding": "zero1"}, {"precision": "fp16", "optimizer": {"name": "lamb"}}),
        ("1n1g", {"cuda_graph": "step"}, {"precision": "bf16"}),
    ],
    ids=["sharded", "zero1", "recorded"],
)
def test_checkpoints_are_saved_and_ranks_begin_again(
    dry: Dry, topology: str, options: dict[str, Any], changes: dict[str, Any]
) -> None:
    """The calls are real. The fake driver's memory holds nothing, so nobody can compare what was loaded."""
    record = dry.run(topology=topology, options=SYNTHETIC | options | {"checkpoint": True}, **changes)
    told = record.checkpoints
    assert told and told.reason is None, told
    assert told.bytes and told.restart_s and len(told.async_lost_s) == len(told.save_s) == 3


def test_small_collectives_are_replayed_as_a_cuda_graph(dry: Dry) -> None:
    record = dry.run(
        model="all-reduce", topology="1n2g", batch=1, options=SYNTHETIC,
        sizes=[65536, 8 << 20], min_seconds=0.05,
    )  # fmt: skip
    assert record.settings and "up to 4 MiB, a CUDA graph of 20 calls" in record.settings["timer"]
    assert {figure.at for figure in record.figures} == {65536, 8 << 20}


def test_a_run_on_a_double_is_no_result(tmp_path: Path) -> None:
    said, record = Dry(tmp_path, trusting=False).launch()
    assert record["status"] == "invalid" and "a fake CUDA driver" in record["reason"], said
    assert record["samples_per_s"] is None


def test_a_run_whose_products_are_nonsense_is_invalid_and_ranks_have_tf32_off(tmp_path: Path) -> None:
    """The whole way of the product on a GPU: to the card, back, and into the record."""
    said, record = Dry(tmp_path, probing=True).launch()
    assert record["status"] == "invalid" and "has the rounding of something coarser" in record["reason"], said
    assert record["rounding"]["size"] == 2048 and record["rounding"]["reason"] is None
    assert record["environment"]["variables"]["NVIDIA_TF32_OVERRIDE"] == "0"


def test_too_little_memory_ends_as_out_of_memory(dry: Dry) -> None:
    options, few = SYNTHETIC | {"activation_checkpointing": False}, {"NULL_CUDA_MIB": "300"}
    said, record = dry.launch(more=few, options=options, batch=512, precision="bf16")
    assert record["status"] == "oom", said
    assert "out of memory" in record["reason"].lower()
    assert record["samples_per_s"] is None


def test_the_largest_batch_is_found(dry: Dry) -> None:
    spec = training_fixtures.spec(device="cuda", batch=64, precision="bf16", options=SYNTHETIC)
    command = [sys.executable, "-c", SEARCH, spec.canonical, str(dry.python)]
    variables = dry.variables(NULL_CUDA_MIB="1024", PYTHONPATH="src")
    done = subprocess.run(command, cwd=dry.lab.folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    largest = records.read_max_batch(dry.lab.folder / "results/largest.json").frameworks["torch"]
    assert largest.status == "ok", largest
    tried = {attempt.batch: attempt.status for attempt in largest.tries}
    assert tried[largest.largest_batch_per_device] == "fits" and tried[largest.smallest_out_of_memory] == "oom"


def told_by(program: str, case: str, folder: Path) -> dict[str, Any]:
    """Run a program of this folder on the fake driver. Return what it tells of a case."""
    subprocess.run(
        [str(lane.python()), str(Path(__file__).with_name(program)), str(folder)], input=json.dumps(cases.parse(case)),
        text=True, env=lane.variables(), check=True, timeout=300,
    )  # fmt: skip
    return dict(json.loads((folder / "told").read_text()))


def test_a_checkpoint_brings_back_what_was_on_the_gpu(tmp_path: Path) -> None:
    told = told_by("resuming.py", "bert-tiny fp16 optimizer=lamb", tmp_path)
    assert told["devices"] == ["cuda:0"]
    assert told["tensors"] > 100 and told["different"] == []
    assert told["steps"][0] == told["steps"][1]


def test_pictures_that_were_decoded_on_the_gpu_do_not_travel_through_the_host(tmp_path: Path) -> None:
    """One copy within the GPU stands for one from the host. The loader's thread waits for it, and nothing else does."""
    told = told_by("arriving.py", "resnet-tiny bf16 batch=8", tmp_path)
    copied = {
        where: {name.partition(" ")[2]: size for kind, name, _, size in told[where] if kind == "copy"}
        for where in ("host", "gpu")
    }
    labels = 4 * 8
    assert copied["host"] == {"HtoD pinned": told["bytes"] + labels}
    assert copied["gpu"] == {"HtoD pinned": labels, "DtoD": told["bytes"]}
    assert told["freed"]
