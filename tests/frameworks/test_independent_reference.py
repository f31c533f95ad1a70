"""The reference of an equivalence check is our PyTorch implementation in double precision. Here it is compared with an
independent one: transformers' own BERT and GPT-2, with their own losses."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from framework_lab import python

HELPER = Path(__file__).with_name("gradients_in_transformers.py")


CASES: dict[str, tuple[dict[str, Any], int]] = {
    "bert": ({"model": "bert-tiny"}, 46),
    "gpt2": ({"model": "gpt2-tiny", "sequence_length": 16}, 36),
    "gpt2 with another gelu": ({"model": "gpt2-tiny", "sequence_length": 16, "gelu": "erf"}, 36),
}
"""Name -> what is compared, and how many tensors it has."""


@pytest.fixture(scope="module")
def compared() -> dict[str, dict[str, Any]]:
    """The results of one process, because loading the library takes seconds."""
    options = {"data": "synthetic", "dropout": 0.0}
    specs = [training_fixtures.spec(**given, options=options) for given, _ in CASES.values()]
    done = subprocess.run(
        [python("hf-loop"), str(HELPER), *(json.dumps(spec.values()) for spec in specs)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines()[-len(CASES) :]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_loss_and_every_gradient_are_those_of_transformers(compared: dict[str, dict[str, Any]], case: str) -> None:
    found = compared[case]
    assert found["losses"][0] == pytest.approx(found["losses"][1], rel=1e-12)
    assert len(found["off"]) == CASES[case][1]
    assert {name.split(".")[-2] for name in found["zero"]} == {"key"} and len(found["zero"]) == 2
    assert max(found["off"].values()) < 1e-9, max(found["off"].items(), key=lambda item: item[1])
