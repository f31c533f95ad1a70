"""What a framework can do with a workload. Everything else is the result `unsupported` with a reason."""

from __future__ import annotations

import glob
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from throughline import frameworks, gpus, workloads
from throughline.workloads import bert
from training_fixtures import spec

pytest.importorskip("torch")


def test_a_feature_belongs_to_framework_and_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bf16" in frameworks.features("torch", "bert-tiny")
    assert "bf16" not in frameworks.features("mxnet-horovod", "bert-tiny")
    frameworks.refuse(spec(precision="bf16"))
    monkeypatch.setattr(bert.Bert, "libraries", {"torch": frozenset({"clipping"})})
    assert frameworks.features("torch", "bert-tiny") == {"clipping"}
    assert frameworks.features("mxnet-horovod", "bert-tiny") == frozenset()
    frameworks.refuse(spec(options={"clip": "norm"}))
    with pytest.raises(workloads.Unsupported, match="bert-tiny in torch has no mixed precision with bf16"):
        frameworks.refuse(spec(precision="bf16"))
    with pytest.raises(workloads.Unsupported, match="bert-tiny has no implementation in mxnet"):
        frameworks.refuse(spec(framework="mxnet-horovod"))


def test_a_form_says_why_it_lacks_a_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    from throughline.workloads.bert import in_torch

    monkeypatch.setattr(bert.Bert, "libraries", {"torch": frozenset({"devices"})})
    monkeypatch.setattr(in_torch.BertInTorch, "lacks", {"gradient_accumulation": "its batches cannot be cut"})
    with pytest.raises(workloads.Unsupported, match="its batches cannot be cut"):
        frameworks.refuse(spec(options={"gradient_accumulation": 2}))


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, []),
        ({"topology": "2n2g"}, ["devices", "nodes"]),
        ({"precision": "fp16", "options": {"compile": True}}, ["amp", "compile"]),
        ({"options": {"compile": True, "cuda_graph": "step"}}, ["compile", "cuda_graph"]),
        (
            {"options": {"gradient_accumulation": 2, "clip": "value", "activation_checkpointing": True}},
            ["gradient_accumulation", "clipping", "activation_checkpointing"],
        ),
    ],
)
def test_what_a_run_needs(changes: dict[str, Any], needed: list[str]) -> None:
    assert frameworks.needs(spec(**changes)) == needed


@pytest.mark.parametrize(
    ("models", "name"),
    [
        (["NVIDIA H100 NVL", "NVIDIA H100 NVL"], "NVIDIA H100 NVL"),
        (["Tesla T4", "Tesla V100-PCIE-32GB"], "GPU"),
        ([], "GPU"),
    ],
)
def test_the_driver_names_the_gpus_of_mxnet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], models: list[str], name: str
) -> None:
    files = []
    for number, model in enumerate(models):
        files.append(tmp_path / str(number))
        files[-1].write_text(f"Model: \t\t {model}\nIRQ:   \t\t 64\n")
    monkeypatch.setattr(glob, "glob", lambda pattern: [str(file) for file in files])
    monkeypatch.setitem(sys.modules, "mxnet", SimpleNamespace(context=SimpleNamespace(num_gpus=lambda: 2)))  # type: ignore[arg-type]
    exec(frameworks.of("mxnet-horovod").accelerators["cuda"], {})
    assert json.loads(capsys.readouterr().out) == {"count": 2, "name": name, "fp16": None}


@pytest.mark.parametrize(
    ("name", "memory_gb", "bandwidth_gb_s", "bf16"),
    [
        ("NVIDIA H100 NVL", 94, 3900, 835.5e12),
        ("NVIDIA H20", 96, 4000, 148e12),
        ("NVIDIA A10G", 24, 600, 70e12),
        ("Tesla V100S-PCIE-32GB", 32, 1134, None),
        ("Tesla V100-PCIE-32GB", 32, 900, None),
        ("Tesla V100-PCIE-16GB", 16, 900, None),
        ("Tesla M40 24GB", 24, 288, None),
        ("Tesla M40", 12, 288, None),
    ],
)
def test_each_size_of_a_card_has_its_own_memory(
    name: str, memory_gb: int, bandwidth_gb_s: int, bf16: float | None
) -> None:
    found = gpus.find(name)
    assert (found.memory_bytes, found.memory_bytes_per_s) == (memory_gb * 2**30, bandwidth_gb_s * 1e9)
    assert found.peak_flops_per_s["bf16"] == bf16
