"""Wide & deep in `torch`: several ranks, with whole or split tables, train like one process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_wide_deep import COLUMNS, STEPS, TABLES, UPDATES, VOCABULARY, WORLDS, batch, spec

import rank_helpers
from throughline.checks import reference

HELPER = Path(__file__).with_name("torch_wide_deep.py")
pytestmark = pytest.mark.usefixtures("double")


Told = dict[int, list[dict[tuple[str, str], dict[str, Any]]]]
"""Number of ranks -> the results of each rank, by table and update."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wide_deep")


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    return rank_helpers.told(HELPER, folder, {world: world for world in WORLDS})


@pytest.mark.parametrize("update", UPDATES)
def test_split_tables_train_as_one_process_with_the_whole_model(told: Told, folder: Path, update: str) -> None:
    weights = pickle.loads((folder / "weights.pickle").read_bytes())
    np.savez(folder / "weights.npz", **weights)
    expected = reference.train(
        spec("replicated", update, 1), None, folder / "weights.npz", [iter([batch(1, 0, n) for n in range(STEPS)])]
    )
    one = told[1][0]["replicated", update]
    assert one["losses"] == pytest.approx(expected.losses, rel=1e-13)
    for world in WORLDS:
        for table in TABLES:
            ranks = [rank[table, update] for rank in told[world]]
            losses = np.mean([rank["losses"] for rank in ranks], 0)
            np.testing.assert_allclose(losses, expected.losses, rtol=1e-13)
            for rank in ranks:
                for name, whole in one["gradients"].items():
                    np.testing.assert_allclose(rank["gradients"][name], whole, rtol=0, atol=1e-12 * abs(whole).max())
                for name, array in one["weights"].items():
                    np.testing.assert_allclose(rank["weights"][name], array, rtol=1e-9, atol=1e-10)
                assert rank["settings"]["parameters"] == sum(array.size for array in weights.values())
            held = [rank["held"] for rank in ranks]
            whole_tables = VOCABULARY * (COLUMNS + 1)
            assert held == [whole_tables] * world if table == "replicated" else sum(held) == whole_tables


def test_a_lazy_update_leaves_rows_alone_that_no_sample_names(told: Told, folder: Path) -> None:
    before = pickle.loads((folder / "weights.pickle").read_bytes())["deep.weight"]
    named = np.unique(np.concatenate([batch(1, 0, step)["ids"].ravel() for step in range(STEPS)]))
    others = np.setdiff1d(np.arange(VOCABULARY), named)
    lazy, dense = (told[2][0]["rows", update]["weights"]["deep.weight"] for update in UPDATES)
    assert len(others) > 100
    assert (lazy[others] == before[others]).all()
    assert (dense[others] != before[others]).any(), "decay is on all rows of a dense update"
    assert (lazy[named] != before[named]).all()
