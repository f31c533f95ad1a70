"""Workloads that train nothing: their keys, and their work compared with a count of the real operations."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from throughline import frameworks, workloads
from throughline.frameworks.rank import load as rank_of
from throughline.spec import Precision, RunSpec
from throughline.study import runs
from throughline.study.config import ConfigError, load
from throughline.workloads import collectives, layers, micro

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from throughline.workloads.in_torch_timed import product  # noqa: E402
from throughline.workloads.layers import in_torch as layers_in_torch  # noqa: E402
from throughline.workloads.micro import in_torch as micro_in_torch  # noqa: E402


def specs(**block: Any) -> list[RunSpec[Any]]:
    block = {"batch": {"fp32": [1]}, "device": "cpu", "repeats": 1, "min_seconds": 0.01, **block}
    return runs.expand(load([], {"benchmarks": {"b": block}}))


def first(**block: Any) -> RunSpec[Any]:
    return specs(**block)[0]


def test_a_list_of_sizes_is_a_key() -> None:
    (spec,) = specs(model="matmul", sizes=[64, 32])
    assert json.loads(spec.canonical)["sizes"] == [64, 32]
    assert runs.read_spec(spec.canonical) == spec == frameworks.specification(json.loads(spec.canonical))
    assert micro.sizes(spec) == [32, 64]
    (usual,) = specs(model="matmul")
    assert "sizes" not in json.loads(usual.canonical)
    assert micro.sizes(usual) == [128, 512, 2048, 8192]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"sizes": 5}, "benchmarks.b.sizes = 5: Input should be a list, such as [a, b]"),
        ({"sizes": [64, "x"]}, "benchmarks.b.sizes.1 = 'x': Input should be a valid integer"),
        ({"sizes": [0]}, "benchmarks.b.sizes.0 = 0: Input should be greater than or equal to 1"),
        ({"model": "all-reduce", "batch": {"fp8": [1]}}, "benchmarks.b.batch.fp8: all-reduce has no fp8"),
    ],
)
def test_a_mistake_is_named(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        specs(**{"model": "matmul", **block})
    assert message in str(caught.value)


def test_a_collective_operation_counts_once() -> None:
    two, four = specs(model="all-reduce", topologies=["1n2g", "1n4g"])
    assert (two.protocol, two.size.global_batch, four.size.global_batch) == (4, 1, 1)
    assert "counts once" in collectives.WORKLOAD.convention(four)["flops"]
    assert two.protocol != runs.PROTOCOL, "a number that some runs have already would not make them again"
    alone = first(model="matmul", topologies=["1n4g"])
    assert (alone.protocol, alone.size.global_batch) == (runs.PROTOCOL, 4), "each rank makes a call of its own"


@pytest.mark.parametrize(
    ("framework", "why"), [("mxnet-horovod", "no implementation in mxnet"), ("torch-horovod", "only trains")]
)
def test_other_frameworks_cannot(framework: str, why: str) -> None:
    with pytest.raises(workloads.Unsupported, match=why):
        frameworks.refuse(first(model="matmul", frameworks=[framework]))
    assert not frameworks.features(framework, "matmul")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "attention", "parameters"),
    [
        ("bert-layer", "eager", 12_596_224),
        ("gpt2-layer", "sdpa", 12_596_224),
        ("t5-encoder-layer", "sdpa", 12_584_960),
        ("t5-decoder-layer", "eager", 16_780_288),
    ],
)
def test_a_layers_work_is_that_of_its_operations(model: str, attention: str, parameters: int) -> None:
    any_kernel = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]  # earlier tests in this process pin one kernel
    spec = first(model=model, sequence_length=16, attention=attention, batch={"fp32": [2]})
    form = workloads.form(model, "torch")
    network = form.build(spec, {}, torch.device("cpu"))
    counted = []
    for work in (network.output, network):
        with sdpa_kernel(any_kernel), FlopCounterMode(display=False) as counter:
            work()
        counted.append(counter.get_total_flops())
    assert counted == [2 * layers.forward_flops(model, 16), 2 * layers.WORKLOAD.flops_per_sample(spec, {}, {})]
    gradients = [parameter.grad.clone() for parameter in network.layer.parameters()]
    assert all(gradient.abs().max() > 1e-4 for gradient in gradients if gradient.ndim > 1), "random, not zero"
    stated = form.settings(network)
    assert (stated["parameters"], stated["dropout"], stated["attention"]) == (parameters, 0.1, attention)
    assert set(layers.WORKLOAD.settings) <= stated.keys()


def test_gradients_do_not_add_up() -> None:
    spec = first(model="bert-layer", sequence_length=8, options={"dropout": 0.0})
    network = workloads.form("bert-layer", "torch").build(spec, {}, torch.device("cpu"))
    network()
    before = network.hidden.grad.clone()
    network()
    assert torch.equal(network.hidden.grad, before)


def test_what_a_call_computes_and_moves() -> None:
    form, at = micro_in_torch.FORM, torch.device("cpu")
    spec = first(model="matmul", sizes=[16, 48])
    network = form.build(spec, {}, at)
    with FlopCounterMode(display=False) as counter:
        network()
    assert counter.get_total_flops() == micro.WORKLOAD.flops_per_sample(spec, {}, {}) == 2 * 48**3
    made = micro_in_torch.vector(1000, at, torch.bfloat16)
    assert [amount for _, amount in made.values()] == [1000 / 1e12, 2 * 2 * 1000 / 1e9]
    assert len({call for call, _ in made.values()}) == 1
    (moved,) = micro_in_torch.copies(4096, at, torch.float32).values()
    assert moved[1] == 2 * 4096 / 1e9
    with pytest.raises(workloads.Unsupported, match="no matrix product"):
        form.build(replace(first(model="vector"), precision="tf32"), {}, at)


@pytest.mark.parametrize(
    ("model", "matrices"), [("bert-layer", 6), ("gpt2-layer", 4), ("t5-encoder-layer", 6), ("t5-decoder-layer", 10)]
)
def test_a_layer_in_fp8_is_that_in_bf16(model: str, matrices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and gradients of a narrow layer are close. They differ by what numbers with three and two bits of
    mantissa lose."""
    for name, value in (("HIDDEN", 32), ("HEADS", 2), ("INNER", 64)):
        monkeypatch.setattr(layers_in_torch, name, value)
    spec = first(model=model, sequence_length=16, options={"dropout": 0.0}, batch={"fp8": [1]})
    found = {}
    precisions: tuple[Precision, ...] = ("bf16", "fp8")
    for precision in precisions:
        torch.manual_seed(1)
        network = layers_in_torch.FORM.build(replace(spec, precision=precision), {}, torch.device("cpu"))
        output = network.output()
        network()
        found[precision] = [output, network.hidden.grad, *(parameter.grad for parameter in network.layer.parameters())]
    assert len(layers_in_torch.in_torch_fp8.matrices(network.layer)) == matrices
    for exact, coarse in zip(found["bf16"], found["fp8"], strict=True):
        if exact.ndim > 1:
            alike = torch.cosine_similarity(exact.flatten().float(), coarse.flatten().float(), dim=0)
            assert 0.95 < alike < 0.999999, "close, and not the same"


def test_a_product_in_fp8() -> None:
    """On a CPU, PyTorch computes it slowly but correctly: sums of e4m3 numbers, rounded to bf16."""
    call = product(32, torch.device("cpu"), torch.float8_e4m3fn)
    call()
    left, right = (one.float() for one in call.args[:2])
    assert torch.allclose(call.keywords["out"].float(), left @ right, rtol=2**-7, atol=0.1)
    spec = first(model="matmul", sizes=[32], batch={"fp8": [1]})
    frameworks.refuse(spec)
    assert micro.WORKLOAD.intensity(spec, "matmul", 32) == 2 * 32 / 3
    form = workloads.form("matmul", "torch")
    for other, why in (
        (replace(spec, model="vector"), "no matrix product"),
        (replace(spec, parameters=micro.Parameters(sizes=(24,))), "multiples of 16, and sizes has 24"),
    ):
        with pytest.raises(workloads.Unsupported, match=why):
            form.build(other, {}, torch.device("cpu"))
    rank = rank_of("torch")(spec, 0, 0, 1, "cpu")
    with pytest.raises(workloads.Unsupported, match="no fast product in fp8 on a CPU"):
        rank.device()


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """nccl-tests says in doc/PERFORMANCE.md: 2 (n - 1) / n for all-reduce, (n - 1) / n for the others."""
    assert [collectives.factor(model, 4) for model in collectives.WORKLOAD.models] == [1.5, 0.75, 0.75, 0.75]
    usual = first(model="all-reduce")
    assert collectives.sizes(usual, "cpu") == [1024, 4096, 16384, 65536, 262_144, 1_048_576]
    assert collectives.sizes(usual, "cuda")[-1] == 2**30
    assert collectives.sizes(first(model="all-reduce", sizes=[8, 4]), "cpu") == [4, 8]


def test_one_device_exchanges_with_nobody() -> None:
    form = workloads.form("all-reduce", "torch")
    with pytest.raises(workloads.Unsupported, match="this topology has one: choose 1n2g or more"):
        form.build(first(model="all-reduce"), {}, torch.device("cpu"))
