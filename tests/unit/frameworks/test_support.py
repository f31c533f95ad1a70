"""What a framework can do with a workload. Everything else is the result `unsupported` with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from throughline import frameworks, workloads
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
    with pytest.raises(workloads.Unsupported, match="bert-tiny has no form in mxnet"):
        frameworks.refuse(spec(framework="mxnet-horovod"))


def test_a_form_says_why_it_lacks_a_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    from throughline.workloads.bert import in_torch

    monkeypatch.setattr(bert.Bert, "libraries", {"torch": frozenset({"devices"})})
    monkeypatch.setattr(in_torch.BertInTorch, "lacks", {"accumulation": "its batches cannot be cut"})
    with pytest.raises(workloads.Unsupported, match="its batches cannot be cut"):
        frameworks.refuse(spec(options={"accumulate": 2}))


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, []),
        ({"topology": "2n2g"}, ["devices", "nodes"]),
        ({"precision": "fp16", "options": {"compile": True}}, ["amp", "compile"]),
        ({"options": {"compile": True, "graph": True}}, ["compile", "graph"]),
        (
            {"options": {"accumulate": 2, "clip": "value", "checkpointing": True}},
            ["accumulation", "clipping", "checkpointing"],
        ),
    ],
)
def test_what_a_run_needs(changes: dict[str, Any], needed: list[str]) -> None:
    assert frameworks.needs(spec(**changes)) == needed
