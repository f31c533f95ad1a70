"""The report's table of frameworks: version, what it was built for, environment, source of the models, features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from report_fixture import CPU, V100, record, spec, write_record
from throughline.records import Summary
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


def test_each_framework_has_its_version_environment_source_and_features(tmp_path: Path) -> None:
    numbers = {"cuda": "11.8", "cudnn": "8.9.6", "nccl": "2.21.5", "driver": "535", "horovod_nccl": "2.21.5"}
    mxnet = one(tmp_path, V100, "mxnet-horovod", mxnet="1.9.1", horovod="0.28.1", controller="mpi", **numbers)
    torch = one(tmp_path / "cpu", CPU, "torch", torch="2.13.0+cpu", cuda=None, driver=None)
    found = rows(mxnet, torch, torch)
    assert len(found) == 2, "a row for each version"
    name, version, built, environment, source, features = found[0]
    assert (name, version) == ("mxnet-horovod", "mxnet 1.9.1, horovod 0.28.1")
    assert built == "CUDA 11.8, cuDNN 8.9.6, NCCL 2.21.5, Horovod's NCCL 2.21.5"
    assert environment == "envs/mxnet-horovod.txt" and "GluonNLP" in source
    assert "amp" in features and "compile" not in features
    assert found[1][:4] == ["torch", "torch 2.13.0+cpu", "CPUs", "the workflow's, envs/torch.txt"]
    assert run_environment.frameworks([]) is None


def test_a_version_has_its_own_line_wherever_its_pins_are(tmp_path: Path) -> None:
    old = one(tmp_path, CPU, "jax@old", jax="0.9.2")
    (found,) = rows(old)
    assert found[:4] == ["jax@old", "jax 0.9.2", "CPUs", "envs/jax@old.txt"]
