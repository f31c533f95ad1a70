"""What holds for several workloads in PyTorch: FLOPs, parameters, dropout, recomputation, compiling, half types."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from throughline import workloads
from throughline.spec import Options, RunSpec, example
from throughline.workloads import bert, faces, gpt2, resnet, wide_deep

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from throughline.workloads import in_torch_form  # noqa: E402

WORDS = {"bert-tiny": bert.Parameters(32, 5), "gpt2-tiny": gpt2.Parameters(24)}
SMALL: dict[str, Any] = {
    **WORDS,
    "resnet-tiny": resnet.Parameters(image=33, classes=7),
    "iresnet-tiny": faces.Parameters(classes=10),
    "wide-deep": wide_deep.Parameters(vocabulary=2000, embedding=8, hidden=3, width=64),
}
"""A small model of each workload."""


def spec_of(model: str, given: Any = None, **options: Any) -> RunSpec[Any]:
    return example(model, given or SMALL[model], options=Options(**{"dropout": 0.0, **options}))


def build(spec: RunSpec[Any], device: str = "cpu") -> Any:
    torch.manual_seed(0)
    with torch.device(device):
        return workloads.form(spec.model, "torch").build(spec, workloads.of(spec.model).facts(None))


def batch_of(spec: RunSpec[Any], count: int = 3, device: str = "cpu") -> dict[str, Any]:
    arrays = workloads.of(spec.model).synthetic(count, spec, 1)
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def flops(spec: RunSpec[Any]) -> Any:
    workload = workloads.of(spec.model)
    return workload.flops_per_sample(spec, workload.facts(None), {})


def click_model(hidden: int, embedding: int) -> wide_deep.Parameters:
    return wide_deep.Parameters(vocabulary=20000, hidden=hidden, embedding=embedding, width=1024)


@pytest.mark.parametrize(
    ("model", "given", "published"),
    [
        ("bert-base", bert.Parameters(128, 20), 69.93e9),
        ("bert-large", bert.Parameters(128, 20), 240.6e9),
        ("bert-base", bert.Parameters(128, 128), 85.50e9),
        ("gpt2-small", gpt2.Parameters(1024), 874.9e9),
        ("gpt2-medium", gpt2.Parameters(1024), 2480.8e9),
        ("resnet50", resnet.Parameters(image=224), 24.30e9),
        ("resnet18", resnet.Parameters(image=64), 0.872e9),
        ("wide-deep", click_model(7, 16), 40.39e6),
        ("wide-deep", click_model(7, 32), 42.95e6),
        ("wide-deep", click_model(2, 16), 8.93e6),
    ],
)
def test_flops_agree_with_the_known_figures(model: str, given: Any, published: float) -> None:
    assert flops(spec_of(model, given)) == pytest.approx(published, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("bert-tiny", None),
        *((model, bert.Parameters(128, 20)) for model in bert.SHAPES),
        *((model, gpt2.Parameters(64)) for model in ("gpt2-tiny", "gpt2-medium")),
        *((model, resnet.Parameters(image, 10)) for model, image in (("resnet-tiny", 75), ("resnet18", 64))),
        ("resnet50", resnet.Parameters(224, 10)),
        ("wide-deep", None),
    ],
)
def test_flops_agree_with_a_count_of_the_real_operations(model: str, given: Any) -> None:
    spec, device = spec_of(model, given), "cpu" if model == "wide-deep" else "meta"
    network, batch = build(spec, device), batch_of(spec, device=device)
    # The counter does not count every fused attention.
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        network(**batch).backward()
    assert counter.get_total_flops() == pytest.approx(3 * flops(spec), rel=1e-3 if model in bert.SHAPES else 0)


LAST, FIRST = {"memory_format": "channels last"}, {"memory_format": "channels first"}


@pytest.mark.parametrize(
    ("model", "given", "parameters", "others"),
    [
        ("gpt2-small", gpt2.Parameters(), 124_475_904, {"vocabulary_rows": 50304}),
        ("gpt2-medium", gpt2.Parameters(), 354_871_296, {"vocabulary_rows": 50304}),
        ("gpt2-tiny", gpt2.Parameters(), 6_966_784, {"vocabulary_rows": 50304}),
        ("resnet50", resnet.Parameters(), 25_557_032, LAST),
        ("resnet18", resnet.Parameters(), 11_689_512, LAST),
        ("resnet-tiny", resnet.Parameters(channels_last=False), 1_019_384, FIRST),
    ],
)
def test_a_model_has_its_published_parameters(model: str, given: Any, parameters: int, others: dict[str, Any]) -> None:
    settings = workloads.form(model, "torch").settings(build(spec_of(model, given), "meta"))
    assert settings == {**settings, "parameters": parameters, **others}


@pytest.mark.parametrize("model", WORDS)
def test_dropout_is_behind_embeddings_attention_and_both_parts_of_a_layer(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []
    module: Any = importlib.import_module(workloads.form(model, "torch").__module__)
    attended = module.attended
    monkeypatch.setattr(module, "dropped", lambda hidden, p: drawn.append(p) or hidden)  # type: ignore[func-returns-value]
    monkeypatch.setattr(module, "attended", lambda *given: drawn.append(given[4]) or attended(*given))  # type: ignore[func-returns-value]
    spec = spec_of(model, dropout=0.25)
    network = build(spec)
    for training, p in ((True, 0.25), (False, 0.0)):
        drawn.clear()
        network.train(training)(**batch_of(spec))
        assert drawn == [p] * (1 + 3 * 2)


@pytest.mark.parametrize("model", WORDS)
def test_recomputed_layers_run_twice_and_give_the_same_gradients(model: str) -> None:
    gradients, calls = [], []
    for recomputed in (False, True):
        spec = spec_of(model, activation_checkpointing=recomputed)
        network = build(spec)
        calls.append(0)

        def count(*given: Any) -> None:
            calls[-1] += 1

        layers = network.layers if model == "gpt2-tiny" else network.bert.encoder.layer
        for layer in layers:
            (layer.up if model == "gpt2-tiny" else layer.output).register_forward_pre_hook(count)
        network(**batch_of(spec)).backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    assert calls == [2, 4]
    torch.testing.assert_close(gradients[0], gradients[1])


def whole_graphs(part: Any, dynamic: Any, backend: Any) -> Any:
    return torch.compile(part, fullgraph=True, dynamic=dynamic, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "half", "graphs"),
    [
        ("gpt2-tiny", None, 3),  # the embeddings, a layer and the last norm; a CPU has no errors of the head
        ("gpt2-tiny", torch.bfloat16, 3),
        ("resnet-tiny", None, 2 + len(resnet.SHAPES["resnet-tiny"].stages)),  # the stem, every stage and the loss
    ],
)
def test_compiled_in_parts_loss_gradients_and_statistics_are_the_same(
    model: str, half: Any, graphs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is one graph, which is compiled once for all equal layers."""
    from torch._dynamo.testing import CompileCounterWithBackend

    monkeypatch.setattr(in_torch_form, "compiled", whole_graphs)
    torch._dynamo.reset()
    counter, spec, found = CompileCounterWithBackend("aot_eager"), spec_of(model), []
    for compiled in (False, True):
        network = build(spec)
        network.half_type = half
        if compiled:
            network.compile_parts(dynamic=False, backend=counter)
        for _ in range(2):
            loss = network(**batch_of(spec))
        loss.backward()
        found.append([loss.detach(), *(one.grad for one in network.parameters()), *network.state_dict().values()])
    torch.testing.assert_close(found[0], found[1])
    assert counter.frame_count == graphs


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("model", WORDS)
def test_with_activations_of_16_bits_the_loss_is_near_and_the_weights_stay_whole(model: str, kind: Any) -> None:
    found, spec = [], spec_of(model)
    for half in (None, kind):
        network = build(spec)
        network.half_type = half
        loss = network(**batch_of(spec))
        loss.backward()
        gradients = [parameter.grad for parameter in network.parameters()]
        assert all(one.dtype == torch.float32 for one in [*gradients, loss])
        found.append((float(loss.detach()), torch.cat([gradient.flatten() for gradient in gradients])))
    (true, right), (near, gradient) = found
    assert near == pytest.approx(true, rel=2e-3)
    assert float(torch.nn.functional.cosine_similarity(gradient, right, dim=0)) > 0.999


@pytest.mark.parametrize("model", SMALL)
def test_synthetic_batches_are_the_same_for_a_seed(model: str) -> None:
    spec, workload = spec_of(model), workloads.of(model)
    first, again, other = (workload.synthetic(40, spec, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    name = next(iter(first))
    assert not np.array_equal(first[name], other[name])
