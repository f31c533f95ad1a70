"""Every layout of a decoder trains like one process with the whole model: losses and updates, in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rank_helpers

pytest.importorskip("torch")

HELPER = Path(__file__).with_name("decoder_layouts.py")

from decoder_layouts import CASES  # noqa: E402


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Map each case to the results of its ranks."""
    worlds = {case: world for case, (world, _, _) in CASES.items()}
    return rank_helpers.told(HELPER, tmp_path_factory.mktemp("layouts"), worlds)


@pytest.mark.parametrize("case", CASES)
def test_it_trains_like_one_process_with_the_whole_model(told: dict[str, list[dict[str, Any]]], case: str) -> None:
    """The learning rate is 1e-3, so each weight moves by about 1e-3 a step. The right updates are rounded to fp32."""
    ranks = told[case]
    losses = np.mean([rank["losses"] for rank in ranks], axis=0)
    np.testing.assert_allclose(losses, ranks[0]["right"], rtol=1e-10)
    for rank in ranks:
        assert max(rank["off"].values()) < 1e-9, max(rank["off"].items(), key=lambda pair: pair[1])
