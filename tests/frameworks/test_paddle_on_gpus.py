"""What Paddle's kernels and copies get on a GPU, without one: the kernels of attention, the copies, the format."""

from __future__ import annotations

import json
from typing import Any

import pytest

import training_fixtures
from framework_lab import helped


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    bert = training_fixtures.spec(framework="paddle", options={"data": "synthetic"})
    pictures = {"model": "resnet-tiny", "image": 33, "classes": 10, "options": {"data": "synthetic"}}
    specs = [json.dumps(one.values()) for one in (bert, training_fixtures.spec(framework="paddle", **pictures))]
    (words,) = helped("paddle", "paddle_on_gpus.py", *specs)
    return dict(words)


def test_attention_takes_a_kernel_that_exists_with_a_mask_that_it_can_read(found: dict[str, Any]) -> None:
    """FlashAttention has 16 bits only, and the memory-efficient kernel wants a mask for every head."""
    assert found["attention"] == [
        ["memory-efficient", "float32", None, 0.1],
        ["mathematics", "float32", ["float32", [2, 1, 1, 16]], 0.1],
        ["flash", "bfloat16", None, 0.1],
        ["flash", "bfloat16", ["bfloat16", [2, 1, 16, 16]], 0.1],
        ["flash", "float16", None, 0.1],
        ["flash", "float16", ["float16", [2, 1, 16, 16]], 0.1],
    ]


def test_copies_do_not_block_and_their_memory_is_kept_until_they_are_done(found: dict[str, Any]) -> None:
    """A step waits for the step before it, whose batch has then arrived."""
    assert found["copies"] == {"asked": [1, False], "kept": [True, False]}


def test_resnet_is_the_same_with_channels_last(found: dict[str, Any]) -> None:
    channels_first, channels_last = found["resnet"]["losses"]
    assert channels_last == pytest.approx(channels_first, rel=1e-6)
    assert found["resnet"]["apart"] < 1e-4
    assert found["resnet"]["formats"] == ["channels first", "channels last"]
    assert found["built"] == [False, True]
