"""Every layout of a decoder trains like one process with the whole model, or is unsupported for a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import decoder_layouts
import numpy as np
import pytest
import torch
from decoder_layouts import CASES, KINDS

import rank_helpers
from throughline import frameworks
from throughline.checks import equivalence
from throughline.frameworks.rank import load
from throughline.spec import RunSpec, Topology
from throughline.workloads import Unsupported
from throughline.workloads.hugging_face import architecture

HELPER = Path(__file__).with_name("decoder_layouts.py")


MIXTURES = ("qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss")
VALUES = {
    "sharding": ("none", "zero1", "shard_grad_op", "full_shard"),
    "tensor_parallel": (1, 2),
    "expert_parallel": (1, 2),
    "hybrid_shard_groups": (1, 2),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Map each case to the results of its ranks."""
    worlds = {case: world for case, (world, _, _) in CASES.items()}
    return rank_helpers.told(HELPER, tmp_path_factory.mktemp("layouts"), worlds)


@pytest.mark.parametrize("case", CASES)
def test_it_trains_like_one_process_with_the_whole_model(told: dict[str, list[dict[str, Any]]], case: str) -> None:
    """The learning rate is 1e-3, so each weight moves by about 1e-3 a step. The right updates are rounded to fp32, and
    PyTorch's way of clipping adds 1e-6 to the norm."""
    ranks = told[case]
    losses = np.mean([rank["losses"] for rank in ranks], axis=0)
    np.testing.assert_allclose(losses, ranks[0]["right"], rtol=1e-10)
    for rank in ranks:
        assert max(rank["off"].values()) < 1e-9, max(rank["off"].items(), key=lambda pair: pair[1])


def reason(kind: str, sharding: str, tensor: int, experts: int, groups: int) -> str | None:
    """Return a part of the reason why these options do not go together; None if they do."""
    if groups > 1 and sharding == "none":
        return "every replica keeps a copy anyway"
    if experts > 1 and tensor > 1:
        return "choose one of them"
    if experts > 1 and sharding == "zero1":
        return "hold different experts"
    return "has no experts" if experts > 1 and kind not in MIXTURES else None


def refused(spec: RunSpec) -> str | None:
    """Return why a run of this specification ends as unsupported; None if it does not."""
    try:
        frameworks.refuse(spec)
        rank: Any = load("torch")(spec, 0, 0, spec.topology.world, "cpu")
        rank.device()
        rank.form.build(spec, {}, torch.device("meta"))
    except Unsupported as found:
        return str(found)
    return None


def test_every_combination_is_supported_or_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in decoder_layouts.described(tmp_path).items():
        monkeypatch.setenv(name, value)
    checked = {None, *(lies(options) for _, _, options in CASES.values())}
    for kind in KINDS:
        base = decoder_layouts.spec(kind, 8, {})
        for chosen in product(*VALUES.values(), (False, True, "selective")):
            options = dict(zip([*VALUES, "activation_checkpointing"], chosen, strict=True))
            found = refused(replace(base, options=replace(base.options, **options)))
            expected = reason(kind, *chosen[:4])
            assert (found is None) == (expected is None), (kind, options, found)
            assert (expected or "") in (found or ""), (kind, options)
            assert found or lies(options) in checked, (kind, options)


def lies(options: Mapping[str, Any]) -> tuple[str, bool, bool, bool] | None:
    """Return the part of the options that an equivalence check has to cover; None if every replica has a whole copy."""
    found = (
        options.get("sharding", "none"),
        *(options.get(name, 1) > 1 for name in ("tensor_parallel", "expert_parallel", "hybrid_shard_groups")),
    )
    return None if found == ("none", False, False, False) else found  # type: ignore[return-value]


def test_every_architecture_is_checked() -> None:
    assert set(architecture.KINDS) == set(KINDS) == {kind for _, kind, _ in CASES.values()}
    cut = {kind for _, kind, options in CASES.values() if options.get("tensor_parallel")}
    assert set(KINDS) - cut == {"mistral", "qwen3_moe"}, "llama and mixtral are cut in the same way"


def test_ranks_of_a_replica_share_the_activations_between_layers(told: dict[str, list[dict[str, Any]]]) -> None:
    """Each of two layers gathers and scatters twice in each pass; and so do, once, the embeddings and the last norm. An
    all-reduce only carries the gradient of a norm."""
    sent = told["layers, windows"][0]["sent"]
    rows = decoder_layouts.BATCH * decoder_layouts.SEQUENCE * 32
    assert sent["_reduce_scatter_base_"] == sent["_allgather_base_"] == [rows] * 10
    assert sorted(sent["allreduce_"]) == 2 * 2 * [8] + (2 * 4 + 1) * [32]


@pytest.mark.parametrize(
    ("kind", "topology", "options"),
    [
        ("qwen3_moe", "1n2g", {"sharding": "shard_grad_op", "gradient_accumulation": 2}),
        ("llama", "1n4g", {"tensor_parallel": 2, "sharding": "full_shard", "clip": "global_norm"}),
    ],
)
def test_the_equivalence_check_finds_it_equal(
    kind: str, topology: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in decoder_layouts.described(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(equivalence, "STEPS", 10)
    spec = replace(decoder_layouts.spec(kind, 1, options), topology=Topology.parse(topology), batch=4)
    frameworks_found = equivalence.check([spec], None, {}, tmp_path / "check")["frameworks"]
    found = frameworks_found["torch"][topology]
    assert (found["verdict"], found["updates"]["verdict"]) == ("equal", "equal"), found
