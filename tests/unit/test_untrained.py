"""Workloads that train nothing: their keys, their work compared with a count of the real operations, and whole runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from throughline import frameworks, records, workloads
from throughline.launch import launch
from throughline.launch.job import Job
from throughline.report.analysis import summary
from throughline.study import runs
from throughline.study.config import ConfigError, load
from throughline.study.runs import RunSpec
from throughline.workloads import collectives, layers, micro


def specs(**block: Any) -> list[RunSpec]:
    block = {"batch": {"fp32": [1]}, "device": "cpu", "repeats": 1, "at_least_s": 0.01, **block}
    return runs.expand(load([], {"benchmarks": {"b": block}}))


def plain(**block: Any) -> dict[str, Any]:
    """Return a specification as a rank gets it."""
    value: dict[str, Any] = json.loads(specs(**block)[0].model_dump_json())
    return value


def test_a_list_of_sizes_is_a_key() -> None:
    (spec,) = specs(model="matmul", sizes=[64, 32])
    assert json.loads(spec.canonical)["sizes"] == [64, 32]
    assert RunSpec.model_validate_json(spec.canonical) == spec == RunSpec.model_validate(json.loads(spec.canonical))
    assert micro.sizes(json.loads(spec.model_dump_json())) == [32, 64]
    (usual,) = specs(model="matmul")
    assert "sizes" not in json.loads(usual.canonical)
    assert micro.sizes(json.loads(usual.model_dump_json())) == [128, 512, 2048, 8192]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"sizes": 5}, "benchmarks.b.sizes = 5: a list is needed, such as [a, b]"),
        ({"sizes": [64, "x"]}, "benchmarks.b.sizes.1 = 'x': a whole number is needed"),
        ({"sizes": [0]}, "benchmarks.b.sizes.0 = 0: it has to be greater than or equal to 1"),
        ({"batch": {"fp32": [32]}}, "benchmarks.b.batch: a call of matmul has no batch; write batch: {fp32: [1]}"),
        ({"convergence": {}}, "benchmarks.b.convergence: matmul has no figures of held-out data"),
        ({"model": "all-reduce", "batch": {"fp8": [1]}}, "benchmarks.b.batch.fp8: all-reduce has no fp8"),
    ],
)
def test_a_mistake_is_named(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        specs(**{"model": "matmul", **block})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("framework", "why"), [("mxnet-horovod", "no form in mxnet"), ("torch-horovod", "only trains")]
)
def test_other_frameworks_cannot(framework: str, why: str) -> None:
    with pytest.raises(workloads.Unsupported, match=why):
        frameworks.refuse(plain(model="matmul", frameworks=[framework]))
    assert not frameworks.features(framework, "matmul")


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
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    any_kernel = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]  # earlier tests in this process pin one kernel
    spec = plain(model=model, sequence=16, attention=attention, batch={"fp32": [2]})
    form = workloads.form(model, "torch")
    network = form.build(spec, {}, torch.device("cpu"))
    counted = []
    for work in (network.output, network):
        with sdpa_kernel(any_kernel), FlopCounterMode(display=False) as counter:
            work()
        counted.append(counter.get_total_flops())
    assert counted == [2 * layers.forward_flops(model, 16), 2 * layers.flops_per_sample(spec, {}, {})]
    gradients = [parameter.grad.clone() for parameter in network.layer.parameters()]
    assert all(gradient.abs().max() > 1e-4 for gradient in gradients if gradient.ndim > 1), "random, not zero"
    stated = form.settings(network)
    assert (stated["parameters"], stated["dropout"], stated["attention"]) == (parameters, 0.1, attention)
    assert set(layers.SETTINGS) <= stated.keys()


def test_gradients_do_not_add_up() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    spec = plain(model="bert-layer", sequence=8, options={"dropout": 0.0})
    network = workloads.form("bert-layer", "torch").build(spec, {}, torch.device("cpu"))
    network()
    first = network.hidden.grad.clone()
    network()
    assert torch.equal(network.hidden.grad, first)


def test_what_a_call_computes_and_moves() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    form, at = workloads.form("matmul", "torch"), torch.device("cpu")
    spec = plain(model="matmul", sizes=[16, 48])
    network = form.build(spec, {}, at)
    with FlopCounterMode(display=False) as counter:
        network()
    assert counter.get_total_flops() == micro.flops_per_sample(spec, {}, {}) == 2 * 48**3
    made = form.vector(1000, at, torch.bfloat16)
    assert [amount for _, amount in made.values()] == [1000 / 1e12, 2 * 2 * 1000 / 1e9]
    assert len({call for call, _ in made.values()}) == 1
    (moved,) = form.copies(4096, at, torch.float32).values()
    assert moved[1] == 2 * 4096 / 1e9
    with pytest.raises(workloads.Unsupported, match="no matrix product"):
        form.build(plain(model="vector") | {"precision": "tf32"}, {}, at)


@pytest.mark.parametrize(
    ("model", "matrices"), [("bert-layer", 6), ("gpt2-layer", 4), ("t5-encoder-layer", 6), ("t5-decoder-layer", 10)]
)
def test_a_layer_in_fp8_is_that_in_bf16(model: str, matrices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and gradients of a narrow layer are close. They differ by what numbers with three and two bits of
    mantissa lose."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    form: Any = workloads.form(model, "torch")
    for name, value in (("HIDDEN", 32), ("HEADS", 2), ("INNER", 64)):
        monkeypatch.setattr(form, name, value)
    spec = plain(model=model, sequence=16, options={"dropout": 0.0}, batch={"fp8": [1]})
    found = {}
    for precision in ("bf16", "fp8"):
        torch.manual_seed(1)
        network = form.build({**spec, "precision": precision}, {}, torch.device("cpu"))
        output = network.output()
        network()
        found[precision] = [output, network.hidden.grad, *(one.grad for one in network.layer.parameters())]
    assert len(form.in_torch_fp8.matrices(network.layer)) == matrices
    for exact, coarse in zip(found["bf16"], found["fp8"], strict=True):
        if exact.ndim > 1:
            alike = torch.cosine_similarity(exact.flatten().float(), coarse.flatten().float(), dim=0)
            assert 0.95 < alike < 0.999999, "close, and not the same"


def test_a_product_in_fp8() -> None:
    """On a CPU, PyTorch computes it slowly but correctly: sums of e4m3 numbers, rounded to bf16."""
    torch = pytest.importorskip("torch")
    from throughline.workloads.in_torch_timed import product

    call = product(32, torch.device("cpu"), torch.float8_e4m3fn)
    call()
    left, right = (one.float() for one in call.args[:2])
    assert torch.allclose(call.keywords["out"].float(), left @ right, rtol=2**-7, atol=0.1)
    spec = plain(model="matmul", sizes=[32], batch={"fp8": [1]})
    frameworks.refuse(spec)
    assert micro.intensity(spec, "matmul", 32) == 2 * 32 / 3
    form = workloads.form("matmul", "torch")
    for other, why in (
        ({"model": "vector"}, "no matrix product"),
        ({"sizes": [24]}, "multiples of 16, and sizes has 24"),
    ):
        with pytest.raises(workloads.Unsupported, match=why):
            form.build({**spec, **other}, {}, torch.device("cpu"))
    rank = frameworks.load("torch")(spec, 0, 0, 1, "cpu")
    with pytest.raises(workloads.Unsupported, match="no fast product in fp8 on a CPU"):
        rank.device()


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """nccl-tests says in doc/PERFORMANCE.md: 2 (n - 1) / n for all-reduce, (n - 1) / n for the others."""
    assert [collectives.factor(model, 4) for model in collectives.MODELS] == [1.5, 0.75, 0.75, 0.75]
    usual = plain(model="all-reduce")
    assert collectives.sizes(usual, "cpu") == [1024, 4096, 16384, 65536, 262_144, 1_048_576]
    assert collectives.sizes(usual, "cuda")[-1] == 2**30
    assert collectives.sizes(plain(model="all-reduce", sizes=[8, 4]), "cpu") == [4, 8]


def test_one_device_exchanges_with_nobody() -> None:
    torch = pytest.importorskip("torch")
    form = workloads.form("all-reduce", "torch")
    with pytest.raises(workloads.Unsupported, match="this topology has one: choose 1n2g or more"):
        form.build(plain(model="all-reduce"), {}, torch.device("cpu"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> records.RunRecord:
    """The record of a whole run with two ranks."""
    pytest.importorskip("torch")
    (spec,) = specs(model="matmul", sizes=[32, 64], topologies=["1n2g"], steps={"warmup": 2, "timed": 5})
    place = tmp_path_factory.mktemp("run") / spec.record.removeprefix("results/")
    place.parent.mkdir(parents=True)
    launch.run(Job(spec, place, place.with_suffix(".log")))
    return records.read_run(place)


def test_a_run_counts_calls_and_has_no_loss(made: records.RunRecord) -> None:
    assert (made.status, made.unit, made.data, made.loss) == ("ok", "calls/s", None, None)
    assert made.steps_timed == 5 and made.samples_per_s == pytest.approx(2 * 5 / made.window_s)  # type: ignore[operator]
    assert [(one.name, one.at, one.unit) for one in made.figures] == [
        ("matmul", 32, "TFLOPS"), ("matmul", 64, "TFLOPS")
    ]  # fmt: skip
    assert all(one.value and one.value > 0 for one in made.figures)
    assert made.settings is not None and made.settings.keys() == {*micro.SETTINGS, "threads"}
    assert made.work is not None and made.work.flops_per_sample == 2 * 64**3
    assert made.work.matmul_flops_per_s


def test_a_summary_of_it(made: records.RunRecord, tmp_path: Path) -> None:
    place = tmp_path / made.spec.record.removeprefix("results/")
    place.parent.mkdir(parents=True)
    place.write_text(made.model_dump_json(by_alias=True))
    whole = summary.summarize([place], repeats=1)
    written = json.loads(json.dumps(whole.model_dump(by_alias=True)))
    assert written["sizes"] == [32, 64] and records.Summary.model_validate(written) == whole
    assert whole.unit == "calls/s" and not re.search("learning_rate", json.dumps(written["settings"]))
