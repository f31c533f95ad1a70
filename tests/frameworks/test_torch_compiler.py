"""A record says how torch.compile was called, and which of Inductor's values were in effect."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import training_fixtures
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.workloads import bert, in_torch_compiler


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
