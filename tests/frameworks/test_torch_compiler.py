"""A record says how torch.compile was called, and which of Inductor's values were in effect. A compiled decoder is one
graph for all equal layers: nothing breaks it, and nothing is compiled after step 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import training_fixtures
from throughline import workloads
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.workloads import bert, in_torch_compiler
from training_fixtures import DECODER


def rank_of(**options: Any) -> TorchDDP:
    rank = TorchDDP(training_fixtures.spec(options=options), 0, 0, 1, "cpu")
    rank.model(bert.WORKLOAD.facts(None))
    rank.optimizer()
    return rank


def test_a_record_says_how_parts_were_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda part, **given: calls.append(given) or part)
    fixed, changing = (rank_of(compile=True, remove_padding=remove_padding) for remove_padding in (False, True))
    each = len(fixed.network.parts())
    assert [call["dynamic"] for call in calls] == [False] * each + [None] * each
    assert {(call["mode"], call["fullgraph"], call["backend"]) for call in calls} == {("default", False, "inductor")}
    start = "torch.compile, mode default, fullgraph false, code for every shape"
    assert fixed.settings()["compiler"].startswith(f"{start}; Inductor: max_autotune false, ")
    assert changing.settings()["compiler"].startswith(f"{start}, and for all lengths where one changes; Inductor: ")


def test_a_value_of_inductor_that_somebody_has_set_is_stated() -> None:
    from torch._inductor import config

    with config.patch({"coordinate_descent_tuning": True, "triton.cudagraphs": True}):
        told = in_torch_compiler.words(False)
    assert "coordinate_descent_tuning true" in told
    assert "triton.cudagraphs true" in told
    assert "coordinate_descent_tuning false" in in_torch_compiler.words(False)


def test_what_is_not_compiled_has_no_compiler() -> None:
    assert "compiler" not in rank_of().settings()


LLAMA = DECODER | {"num_hidden_layers": 4}
MIXTURE = LLAMA | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
WINDOWS = LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 2}


@pytest.mark.parametrize(
    ("content", "precision", "activation_checkpointing", "attention", "kinds"),
    [
        (LLAMA, "bf16", "selective", "sample", 1),
        (LLAMA, "bf16", True, "sample", 1),
        (MIXTURE, "fp32", False, "sample", 1),
        (WINDOWS, "bf16", False, "document", 2),
    ],
    ids=["llama", "llama recomputed", "mixture", "windows and documents"],
)
def test_a_decoder_is_one_graph_for_all_equal_layers(
    content: Any, precision: str, activation_checkpointing: Any, attention: str, kinds: int
) -> None:
    import torch._dynamo
    from torch._dynamo.testing import CompileCounterWithBackend
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    options = {"activation_checkpointing": activation_checkpointing}
    spec = training_fixtures.decoder_spec(
        content, options, sequence_length=64, precision=precision, attention=attention
    )
    rank = TorchDDP(spec, 0, 0, 1, "cpu")
    rank.device()
    rank.model({})
    counter = CompileCounterWithBackend("aot_eager")
    rank.network.compile_parts(dynamic=False, backend=counter)
    rank.optimizer()
    graphs = []
    for seed in range(4):
        rank.step([rank.deliver(rank.data(workloads.of(spec.model).synthetic(2, spec, seed)))])
        graphs.append(counter.frame_count)
    assert graphs == [kinds + 2] * 4, "the layers, and what lies before and after them"
    assert not counters["graph_break"]
