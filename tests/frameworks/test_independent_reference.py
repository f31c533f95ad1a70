"""The reference of a proof is our PyTorch form in double precision. Here it is compared with an independent one:
transformers' own BERT and GPT-2, with their own losses."""

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


@pytest.mark.parametrize(
    ("given", "tensors"),
    [
        ({"model": "bert-tiny"}, 46),
        ({"model": "gpt2-tiny", "sequence": 16}, 36),
        ({"model": "gpt2-tiny", "sequence": 16, "gelu": "erf"}, 36),
    ],
    ids=["bert", "gpt2", "gpt2 with another gelu"],
)
def test_loss_and_every_gradient_are_those_of_transformers(given: dict[str, Any], tensors: int) -> None:
    spec = training_fixtures.spec(**given, options={"data": "synthetic", "dropout": 0.0})
    done = subprocess.run(
        [python("hf-loop"), str(HELPER), json.dumps(spec.values())],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["losses"][0] == pytest.approx(found["losses"][1], rel=1e-12)
    assert len(found["off"]) == tensors
    assert {name.split(".")[-2] for name in found["zero"]} == {"key"} and len(found["zero"]) == 2
    assert max(found["off"].values()) < 1e-9, max(found["off"].items(), key=lambda item: item[1])
