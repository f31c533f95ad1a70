"""The report's table of frameworks, and the facts of the environment that a run's telemetry adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from report_fixture import CPU, V100, record, spec, write_record
from throughline.records import Summary, read_run
from throughline.report.analysis import summary
from throughline.report.render import run_environment
from throughline.report.render.tables import PAGE


def rows(*summaries: Summary) -> list[list[str]]:
    table = run_environment.frameworks(summaries)
    assert table
    form = table.in_form(PAGE)
    assert form
    return [[entry.text for entry in line.entries] for line in form.lines]


def one(root: Path, device: dict[str, Any], framework: str, **stated: Any) -> Summary:
    value = record(spec(framework=framework), 100.0, device=device, framework=stated)
    return summary.summarize([write_record(root, value)], repeats=1)


def test_each_framework_has_its_version_environment_and_source(tmp_path: Path) -> None:
    numbers = {"cuda": "11.8", "cudnn": "8.9.6", "nccl": "2.21.5", "driver": "535", "horovod_nccl": "2.21.5"}
    mxnet = one(tmp_path, V100, "mxnet-horovod", mxnet="1.9.1", horovod="0.28.1", controller="mpi", **numbers)
    torch = one(tmp_path / "cpu", CPU, "torch", torch="2.13.0+cpu", cuda=None, driver=None)
    found = rows(mxnet, torch, torch)
    assert len(found) == 2, "a row for each version"
    name, version, built, environment, source = found[0]
    assert (name, version) == ("mxnet-horovod", "mxnet 1.9.1, horovod 0.28.1")
    assert built == "CUDA 11.8, cuDNN 8.9.6, NCCL 2.21.5, Horovod's NCCL 2.21.5"
    assert environment == "envs/mxnet-horovod.txt" and "GluonNLP" in source
    assert found[1][:4] == ["torch", "torch 2.13.0+cpu", "CPUs", "the workflow's, envs/torch.txt"]
    assert run_environment.frameworks([]) is None


def test_the_image_and_the_links_of_a_run_are_shown(tmp_path: Path) -> None:
    """The bandwidth and the NVLink of the V100 are those that a blog prints: 900 GB/s, 300 GB/s in both directions."""
    value = record(spec(topology="1n2g"), 100.0, device=V100, framework={"torch": "2.13.0"})
    value["environment"]["container"] = "apptainer: torch.sif"
    ports = [{"name": "mlx5_0/1", "gbit_per_s": 100.0, "state": "active", "link_layer": "Ethernet"}]
    machine = {"network": [{"name": "eth0", "gbit_per_s": None}], "infiniband": ports}
    card = {"nvlinks": [True] * 5 + [False]}
    value["hardware"] = [{"node": 0, "machine": machine, "devices": [card, card], "reasons": {}}]
    path = write_record(tmp_path, value)
    found = summary.summarize([path], repeats=1)
    table = run_environment.environments([found], [read_run(path)])
    assert table
    facts = {line.entries[0].text: line.entries[1].text for line in table.lines}
    assert facts["container"] == "apptainer: torch.sif"
    assert facts["memory bandwidth of a GPU"] == "900 GB/s (datasheet)"
    assert facts["NVLink of a GPU"] == "300 GB/s, both directions together (datasheet)"
    assert facts["NVLinks"] == "2 × (5 of 6 are active)"
    assert facts["network interfaces"] == "1 × (eth0, speed not stated)"
    assert facts["InfiniBand and RoCE"] == "1 × (mlx5_0/1, 100 Gbit/s, Ethernet, active)"


def test_a_version_has_its_own_line_wherever_its_pins_are(tmp_path: Path) -> None:
    old = one(tmp_path, CPU, "jax@old", jax="0.9.2")
    (found,) = rows(old)
    assert found[:4] == ["jax@old", "jax 0.9.2", "CPUs", "envs/jax@old.txt"]
