"""Wide & deep: FLOPs, synthetic clicks, the figures of held-out data, and the update by rows compared with
SparseAdam."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import training_fixtures
from throughline import workloads
from throughline.launch import outcome
from throughline.report.analysis import workload_figures
from throughline.spec import Optimizer, Options, RunSpec, example, values
from throughline.workloads import bert, micro, wide_deep

torch = pytest.importorskip("torch")

from throughline.frameworks.torch.optimizers import build  # noqa: E402
from throughline.workloads.wide_deep import in_torch  # noqa: E402

GIVEN = wide_deep.Parameters(vocabulary=20000, embedding=8, hidden=3, width=64)


def spec_of(optimizer: str = "adam", gradient_sync: bool = True, **parameters: Any) -> RunSpec[wide_deep.Parameters]:
    options = Options(dropout=0.0, gradient_sync=gradient_sync)
    return example("wide-deep", replace(GIVEN, **parameters), optimizer=Optimizer(optimizer), options=options)


SPEC = spec_of()


def test_the_layers_have_as_many_parameters_as_the_published_model() -> None:
    with torch.device("meta"):
        network = in_torch.FORM.build(spec_of(hidden=7, embedding=16, width=1024), {})
    assert sum(parameter.numel() for parameter in network.layers.parameters()) == 6_738_945


@pytest.mark.parametrize("vocabulary", [1000, 2_359_296, 409_600_000])
def test_synthetic_fields_fill_the_vocabulary(vocabulary: int) -> None:
    sizes = wide_deep.cardinalities(vocabulary)
    assert (len(sizes), sum(sizes), min(sizes) > 1) == (26, vocabulary, True)


def test_synthetic_clicks() -> None:
    batch = wide_deep.WORKLOAD.synthetic(20000, SPEC, 7)
    assert {name: (array.shape, array.dtype.str) for name, array in batch.items()} == {
        "ids": ((20000, 26), "<i4"), "numbers": ((20000, 13), "<f4"), "labels": ((20000,), "<f4"),
    }  # fmt: skip
    ends = np.cumsum(wide_deep.cardinalities(20000))
    assert (batch["ids"] < ends).all() and (batch["ids"] >= ends - wide_deep.cardinalities(20000)).all()
    assert 0.2 < batch["labels"].mean() < 0.25


def test_synthetic_values_follow_zipfs_law() -> None:
    draw = np.random.Generator(np.random.Philox(key=1))
    counts = np.bincount(wide_deep.drawn(draw, 400_000, [1000])[:, 0], minlength=1000)
    assert len(counts) == 1000
    tens = [counts[begin : 2 * begin].sum() for begin in (8, 32, 128)]
    # From n to 2 n there are n^(1 - s) times as many as from 1 to 2.
    assert tens[1] / tens[0] == pytest.approx(4 ** (1 - wide_deep.EXPONENT), rel=0.1)
    assert tens[2] / tens[0] == pytest.approx(16 ** (1 - wide_deep.EXPONENT), rel=0.1)


def test_held_out_figures_are_those_of_all_pairs() -> None:
    torch.manual_seed(1)
    network = in_torch.FORM.build(SPEC, {})
    batch = {name: torch.from_numpy(array) for name, array in wide_deep.WORKLOAD.synthetic(400, SPEC, 3).items()}
    network.load_state_dict({name: 2 * one for name, one in network.state_dict().items()})
    looked = wide_deep.WORKLOAD.look(in_torch.FORM.sums(network, batch))
    scores = network.logits(batch["ids"], batch["numbers"]).sigmoid()
    assert looked["loss"] == pytest.approx(float(network(**batch).detach()), rel=1e-5)
    clicks, others = scores[batch["labels"] > 0], scores[batch["labels"] == 0]
    assert looked["auc"] == pytest.approx(float((clicks[:, None] > others).float().mean()), abs=2e-3)


def test_an_untrained_model_knows_nothing() -> None:
    network = in_torch.FORM.build(SPEC, {})
    network.deep.weight.data.zero_()
    network.wide.weight.data.zero_()
    batch = {name: torch.from_numpy(array) for name, array in wide_deep.WORKLOAD.synthetic(400, SPEC, 3).items()}
    batch["numbers"].zero_()
    assert float(network(**batch).detach()) == pytest.approx(np.log(2))


@pytest.mark.parametrize("as_named", [False, True])
def test_the_update_by_rows_is_sparse_adam(as_named: bool) -> None:
    torch.manual_seed(1)
    tables = [torch.rand(50, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    tables[1].data.copy_(tables[0].data)
    constants = Optimizer("adam", learning_rate=1e-2, betas=(0.9, 0.999), epsilon=1e-30, weight_decay=0.0)
    ours = build(constants, [tables[0], torch.zeros(1, requires_grad=True)], by_rows=[tables[0]])
    ours.optimizers["tables"].as_named = as_named
    theirs = torch.optim.SparseAdam([tables[1]], lr=1e-2, betas=(0.9, 0.999), eps=1e-30)
    for _ in range(20):
        ids = torch.randint(50, (12,))  # some ids occur several times
        vectors = torch.rand(12, 4, dtype=torch.float64)
        for table in tables:
            table.grad = torch.sparse_coo_tensor(ids[None], vectors, table.shape, check_invariants=True)
        ours.step()
        theirs.step()
        torch.testing.assert_close(tables[0], tables[1], rtol=0, atol=1e-12)


def test_what_a_lazy_update_cannot_do_is_said() -> None:
    for changed, words in (
        ({"optimizer": "lamb"}, "Adam and AdamW"),
        ({"table": "rows", "gradient_sync": False}, "cannot train without exchanging its rows"),
    ):
        with pytest.raises(workloads.Unsupported, match=words):
            in_torch.FORM.build(spec_of(**changed), {})


def test_every_title_names_what_decides_the_bytes() -> None:
    summary: Any = SimpleNamespace(model="wide-deep", parameters=values(replace(GIVEN, table="rows")))
    assert workload_figures.titled(summary) == "vocabulary 20000 & embedding 8 & hidden 3 & table rows & update lazy"


def test_latency_takes_each_step_on_its_slowest_rank() -> None:
    """One rank's steps take 1 to 200 ms, those of the other take 2 to 201 ms."""

    def rank(first: int, steps: int = 200) -> Any:
        return training_fixtures.measured(step_seconds=[step / 1000 for step in range(first, first + steps)])

    found = outcome.step_percentiles(SPEC, [rank(1), rank(2), rank(1)])
    assert [(one["name"], one["at"]) for one in found] == [("latency", at) for at in ("median", "95 %", "99 %")]
    assert [one["value"] for one in found] == pytest.approx([101.5, 191, 199])
    assert len(outcome.step_percentiles(example("bert-tiny", bert.Parameters()), [rank(1)])) == 3
    assert outcome.step_percentiles(example("matmul", micro.Parameters()), [rank(1)]) == []
    few = {steps: [one["value"] for one in outcome.step_percentiles(SPEC, [rank(1, steps)])] for steps in (3, 20)}
    assert few == {3: [2.0, None, None], 20: [pytest.approx(10.5), pytest.approx(19.0), None]}
    in_turn = [training_fixtures.measured(step_seconds=pair * 50) for pair in ([0.001, 0.003], [0.003, 0.001])]
    assert [one["value"] for one in outcome.step_percentiles(SPEC, in_turn)] == pytest.approx([3.0, 3.0, 3.0])


@pytest.mark.slow
def test_unique_ids_are_the_mean_of_all_batches_of_all_ranks() -> None:
    batches = [wide_deep.WORKLOAD.synthetic(300, SPEC, seed) for seed in range(4)]
    unique = [len(np.unique(batch["ids"])) for batch in batches]
    counts = [wide_deep.WORKLOAD.counts(batch) for batch in batches]
    told = [
        wide_deep.WORKLOAD.counted(tuple(map(sum, zip(*own, strict=True))), 600, SPEC)
        for own in (counts[:2], counts[2:])
    ]
    ranks = [training_fixtures.measured(rank, counted=one) for rank, one in enumerate(told)]
    (found,) = outcome._counted_figures(SPEC, ranks)
    assert (found["name"], found["unit"], found["at"]) == ("unique_ids", "rows", None)
    assert found["value"] == pytest.approx(np.mean(unique)) and len(set(unique)) > 1
