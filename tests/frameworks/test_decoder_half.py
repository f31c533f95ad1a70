"""The half copy of a decoder's weights: for every architecture it changes no number, to the last bit."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import handover
from throughline.workloads.hugging_face import configuration
from throughline.workloads.hugging_face.architecture import KINDS

torch = pytest.importorskip("torch")

import test_decoders  # noqa: E402
import torch_again  # noqa: E402
from test_torch_half import STEPS, same, train  # noqa: E402

from throughline.frameworks.rank import load  # noqa: E402
from throughline.frameworks.torch.ddp import TorchDDP  # noqa: E402
from throughline.workloads.in_torch_half import HalfCopy  # noqa: E402


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes two ranks of a random small decoder: without a copy and with one."""

    def made(kind: str, seed: int = 1, **changes: Any) -> tuple[TorchDDP, TorchDDP]:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(test_decoders.configuration(kind, random.Random(seed))))
        model = configuration.of_map({"transformers": str(file), "task": "clm"})
        monkeypatch.setenv(handover.VARIABLE, handover.packed(models={model.sha256: str(file)}))
        options = {"data": "synthetic", **changes.pop("options", {})}
        spec = training_fixtures.spec(
            topology="1n1g", model=str(model), task="clm", config_sha256=model.sha256, sequence_length=24, batch=2,
            options=options, **{"precision": "bf16", **changes},
        )  # fmt: skip
        both = tuple(TorchDDP(spec, 0, 0, 1, "cpu") for _ in range(2))
        for rank, on in zip(both, ((), ("cpu",)), strict=True):
            rank.copies_weights_on = on
            rank.device()
            rank.model({})
            rank.optimizer()
        assert both[0].copied is None
        return both

    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_changes_no_number(ranks: Any, kind: str) -> None:
    for seed in (1, 2):
        plain, copied = ranks(kind, seed, options={"gradient_accumulation": 2, "clip": "global_norm"})
        assert copied.copied is not None
        same(plain, copied)


def test_scaled_it_computes_the_same(ranks: Any) -> None:
    same(*ranks("qwen2", precision="fp16", options={"clip": "norm"}))


@pytest.mark.parametrize("activation_checkpointing", [True, "selective"])
def test_with_checkpointing_there_is_no_copy(ranks: Any, activation_checkpointing: Any) -> None:
    """A copy would stay where a layer's casts go after its passes."""
    assert ranks("qwen2", options={"activation_checkpointing": activation_checkpointing})[1].copied is None


def test_compiled_and_recorded_it_computes_the_same(ranks: Any) -> None:
    both = ranks("llama", 3)
    for rank in both:
        rank.network.compile_parts(dynamic=False, backend="aot_eager")
    same(*both)
    both = ranks("llama", 3)
    for rank in both:
        torch_again.whole_step(rank)
    same(*both)


def test_what_is_copied(ranks: Any) -> None:
    """All but norms, sinks and embeddings that are not the head's; projections of one product have one copy."""
    _, rank = ranks("gpt_oss")
    names = {id(parameter): name for name, parameter in rank.network.named_parameters()}
    copied = {names[id(weight)] for weight in rank.copied.weights}
    left = set(names.values()) - copied
    assert all(name.endswith(("norm.weight", "sinks", "embed_tokens.weight")) for name in left) and "sinks" in str(left)
    assert len(train(rank)) == STEPS


def test_shared_weights_and_products_in_fp8_have_no_copy(ranks: Any) -> None:
    """Ranks that share a replica or experts exchange gradients of whole weights; fp8 casts the weights themselves."""
    _, rank = ranks("mixtral")
    made = rank.network.made
    for name, value in (
        ("ranks", object()),
        ("holders", object()),
        ("made", replace(made, layers=tuple(replace(layer, fp8="tensorwise") for layer in made.layers))),
    ):
        network = copy.copy(rank.network)
        setattr(network, name, value)
        halves = HalfCopy(torch.bfloat16)
        rank.form.halve(network, halves)
        assert halves.parts == []


def test_the_library_s_own_model_makes_no_copy() -> None:
    """Autocast casts its weights. On a GPU such a rank has no `half_type`."""
    rank: Any = load("hf-loop")(training_fixtures.spec(framework="hf-loop", precision="bf16"), 0, 0, 1, "cpu")
    rank.device()
    rank.model({"vocabulary": 200})
    rank.copies_weights_on = tuple("cpu" for _ in rank.copies_weights_on)
    rank.optimizer()
    assert rank.copied is None
