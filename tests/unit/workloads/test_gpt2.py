"""GPT-2's shapes, FLOPs and batches, and its training step compared with Hugging Face's GPT2LMHeadModel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from throughline.spec import Options, RunSpec, example
from throughline.workloads import bert, gpt2

torch = pytest.importorskip("torch")

from throughline.workloads import in_torch_form  # noqa: E402
from throughline.workloads.gpt2 import in_torch  # noqa: E402

VOCABULARY, SEQUENCE = 500, 24
MADE = gpt2.Shape(2, 4, 32)
ROWS = 512


@pytest.mark.parametrize(
    ("model", "per_token", "per_sequence"), [("gpt2-small", 854.4e6, 874.9e9), ("gpt2-medium", 2422.7e6, 2480.8e9)]
)
def test_flops_agree_with_the_known_figures(model: str, per_token: float, per_sequence: float) -> None:
    flops = gpt2.flops(gpt2.SHAPES[model], 1024, gpt2.VOCABULARY)
    assert flops == pytest.approx(per_sequence, rel=1e-4)
    assert flops / 1024 == pytest.approx(per_token, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt2-tiny", "gpt2-medium"])
def test_flops_agree_with_a_count_of_the_real_operations(model: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    spec, facts = spec_of(model, sequence_length=64), gpt2.WORKLOAD.facts(None)
    with torch.device("meta"):
        network = in_torch.FORM.build(spec, facts)
    batch = {"tokens": torch.from_numpy(gpt2.WORKLOAD.synthetic(3, spec, 1)["tokens"]).to("meta")}
    # The counter does not count every fused attention.
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        network(**batch).backward()
    assert counter.get_total_flops() == 3 * gpt2.WORKLOAD.flops_per_sample(spec, facts, {})


@pytest.mark.parametrize(
    ("model", "parameters"), [("gpt2-small", 124_475_904), ("gpt2-medium", 354_871_296), ("gpt2-tiny", 6_966_784)]
)
def test_a_model_has_its_published_parameters(model: str, parameters: int) -> None:
    with torch.device("meta"):
        network = in_torch.FORM.build(spec_of(model), gpt2.WORKLOAD.facts(None))
    assert in_torch.FORM.settings(network)["parameters"] == parameters
    assert in_torch.FORM.settings(network)["vocabulary_rows"] == 50304


def spec_of(model: str, **parameters: Any) -> RunSpec[gpt2.Parameters]:
    return example(model, gpt2.Parameters(**parameters), options=Options(dropout=0.0))


def network(activation_checkpointing: bool = False, dropout: float = 0.0, **parameters: Any) -> Any:
    torch.manual_seed(0)
    given = gpt2.Parameters(**{"sequence_length": SEQUENCE, **parameters})
    return in_torch.Gpt2(MADE, VOCABULARY, given, dropout, activation_checkpointing)


def tokens(count: int = 3) -> Any:
    drawn = np.random.default_rng(3).integers(0, VOCABULARY, (count, SEQUENCE + 1)).astype(np.uint16)
    return torch.from_numpy(drawn)


OF_A_LAYER = {
    "ln_1": ["attention_norm"],
    "attn.c_attn": ["query", "key", "value"],
    "attn.c_proj": ["mix"],
    "ln_2": ["feed_norm"],
    "mlp.c_fc": ["up"],
    "mlp.c_proj": ["down"],
}
"""Hugging Face's name for a part of a layer -> our parts. Theirs is ours side by side; matrices are transposed."""


def as_theirs(named: dict[str, Any]) -> dict[str, Any]:
    """Return our tensors (weights or gradients) with Hugging Face's names and layout."""
    found = {
        "transformer.wte.weight": named["tokens.weight"],
        "transformer.wpe.weight": named["positions.weight"],
        **{f"transformer.ln_f.{kind}": named[f"norm.{kind}"] for kind in ("weight", "bias")},
    }
    for number in range(MADE.layers):
        for their, ours in OF_A_LAYER.items():
            for kind in ("weight", "bias"):
                whole = torch.cat([named[f"layers.{number}.{name}.{kind}"] for name in ours])
                found[f"transformer.h.{number}.{their}.{kind}"] = whole.T if whole.ndim == 2 else whole
    return found


def theirs(ours: Any, gelu: str = "gelu_new") -> Any:
    """Return Hugging Face's own model with our weights and their type."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=ROWS,
        n_embd=MADE.hidden,
        n_layer=MADE.layers,
        n_head=MADE.heads,
        activation_function=gelu,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    config._attn_implementation = "eager"
    network = GPT2LMHeadModel(config).to(ours.norm.weight.dtype)
    weights = {name: tensor.detach().clone() for name, tensor in as_theirs(dict(ours.named_parameters())).items()}
    network.load_state_dict({**weights, "lm_head.weight": weights["transformer.wte.weight"]})
    network.tie_weights()
    return network


@pytest.mark.parametrize(("gelu", "deviations"), [("tanh", (0.02, 0.01, 0.01)), ("erf", (0.01, 0.02, 0.02))])
def test_the_form_in_transformers_trains_the_same_function(gelu: str, deviations: tuple[float, ...]) -> None:
    from throughline.workloads.gpt2 import in_transformers

    positions, mix, down = deviations
    given = {"gelu": gelu, "position_init": positions, "residual_init": "scaled" if mix < 0.02 else "plain"}
    spec, ours, theirs = spec_of("gpt2-tiny", sequence_length=SEQUENCE, **given), in_torch.FORM, in_transformers.FORM
    torch.manual_seed(0)
    own, other = (form.build(spec, {"vocabulary": VOCABULARY}) for form in (ours, theirs))
    wanted = {"positions": positions, "layers.1.mix": mix, "layers.0.down": down, "layers.0.up": 0.02, "tokens": 0.02}
    for drawn in (ours.weights(own), theirs.weights(other)):
        assert {name: drawn[f"{name}.weight"].std() for name in wanted} == pytest.approx(wanted, rel=0.03)
    weights = {name: array * np.float32(1.5) for name, array in ours.weights(own).items()}
    for form, one in ((ours, own), (theirs, other)):
        form.load(one, weights)
        back = form.weights(one)
        assert back.keys() == weights.keys() and all((back[name] == weights[name]).all() for name in weights)
    batch = {"tokens": tokens()}
    losses = [one(**batch).item() for one in (own, other)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert theirs.sums(other, batch) == pytest.approx(ours.sums(own, batch), rel=1e-6)
    stated = [form.settings(one) for form, one in ((ours, own), (theirs, other))]
    assert stated[1] == {**stated[0], "attention": "transformers: sdpa"}
    with pytest.raises(ValueError, match="weights of another network"):
        theirs.load(other, {**weights, "more": np.zeros(1)})


def their_loss(network: Any, batch: Any) -> Any:
    ids = batch.long()
    scores = network(input_ids=ids[:, :-1]).logits
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten()), scores


@pytest.mark.parametrize(("gelu", "name"), [("tanh", "gelu_new"), ("erf", "gelu")])
def test_scores_loss_gradients_and_one_step_are_hugging_faces(gelu: str, name: str) -> None:
    ours, batch = network(gelu=gelu).double(), tokens()
    other = theirs(ours, name)
    expected, scores = their_loss(other, batch)
    last: list[Any] = []
    ours.norm.register_forward_hook(lambda norm, given, states: last.append(states))
    loss = ours(batch)
    torch.testing.assert_close(last[0] @ ours.tokens.weight.T, scores, rtol=0, atol=1e-10)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)
    loss.backward()
    expected.backward()
    gradients = as_theirs({name: parameter.grad for name, parameter in ours.named_parameters()})
    for name, one in other.named_parameters():
        torch.testing.assert_close(gradients[name], one.grad, rtol=0, atol=1e-10, msg=name)

    def updated(model: Any) -> dict[str, Any]:
        torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, eps=1e-6).step()
        return dict(model.named_parameters())

    after, right = as_theirs(updated(ours)), updated(other)
    for name in right:
        torch.testing.assert_close(after[name], right[name], rtol=0, atol=1e-12, msg=name)


def test_no_position_sees_what_is_behind_it() -> None:
    """With dropout, a CPU uses our own attention with our own mask, so the test covers it as well."""
    batch, last = tokens(), VOCABULARY - 1
    for dropout in (0.0, 0.3):
        ours, found = network(dropout=dropout), list[Any]()
        ours.norm.register_forward_pre_hook(lambda norm, given, found=found: found.append(given[0]))
        for changed in (False, True):
            ids = batch.long()
            ids[:, 10:] = last if changed else ids[:, 10:]
            torch.manual_seed(1)
            ours(ids)
        assert torch.equal(found[0][:, :10], found[1][:, :10]) and not torch.equal(found[0][:, 10:], found[1][:, 10:])


def test_checkpointing_computes_layers_twice_and_the_same_gradients() -> None:
    gradients, calls = [], []
    for activation_checkpointing in (False, True):
        model = network(activation_checkpointing)
        calls.append(0)

        def count(*given: Any) -> None:
            calls[-1] += 1

        for block in model.layers:
            block.up.register_forward_hook(count)
        model(tokens()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert calls == [2, 4]
    torch.testing.assert_close(gradients[0], gradients[1])


def whole_graphs(part: Any, dynamic: Any, backend: Any) -> Any:
    return torch.compile(part, fullgraph=True, dynamic=dynamic, backend=backend)


@pytest.mark.parametrize("half", [None, torch.bfloat16])
def test_compiled_whole_the_loss_and_gradients_are_the_same(half: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is one graph, which is compiled once for all layers."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    found = []
    for compiled in (False, True):
        model = network()
        model.half_type = half
        if compiled:
            monkeypatch.setattr(in_torch_form, "compiled", whole_graphs)
            model.compile_parts(dynamic=False, backend=counter)
        loss = model(tokens())
        loss.backward()
        found.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(found[0], found[1])
    assert counter.frame_count == 3  # the embeddings, a layer and the last norm; a CPU has no errors of the head


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_half_types_loss_is_near_and_its_weights_stay_whole(kind: Any) -> None:
    found = []
    for half in (None, kind):
        model = network()
        model.half_type = half
        loss = model(tokens())
        loss.backward()
        every = [parameter.grad for parameter in model.parameters()]
        assert all(gradient.dtype == torch.float32 for gradient in every) and loss.dtype == torch.float32
        found.append((float(loss.detach()), torch.cat([gradient.flatten() for gradient in every])))
    (true, right), (near, gradient) = found
    assert near == pytest.approx(true, rel=2e-3)
    assert float(torch.nn.functional.cosine_similarity(gradient, right, dim=0)) > 0.999


def test_a_batch_is_what_the_reader_gives_and_nothing_is_copied() -> None:
    rows = {"tokens": np.arange(50, dtype=np.uint16).reshape(2, 25)}
    workload, spec = gpt2.WORKLOAD, spec_of("gpt2-tiny")
    assert workload.batch(rows, Options())["tokens"] is rows["tokens"]
    assert workload.counted((), 2, spec) == {"real_token_share": 1.0} and workload.counts(rows) == ()


def test_synthetic_tokens_are_of_the_vocabulary_and_the_same_for_a_seed() -> None:
    spec = spec_of("gpt2-tiny", sequence_length=1024)
    first, again, other = (gpt2.WORKLOAD.synthetic(40, spec, seed)["tokens"] for seed in (1, 1, 2))
    assert first.shape == (40, 1025) and first.dtype == np.uint16
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert 50200 < first.max() < gpt2.VOCABULARY and first.min() < 50
    assert gpt2.padded(50257) == 50304 and gpt2.padded(50304) == 50304


BERTS = {"sequence_length": 128, "predictions": 20, "vocabulary": {"size": 30522}}
TOKENS = {"tokens": 1024, "vocabulary": {"size": 50257}}


def test_a_manifest_of_another_kind_or_with_too_little_text_is_refused() -> None:
    given, workload = gpt2.Parameters(sequence_length=1024), gpt2.WORKLOAD
    assert "GPT-2 reads windows of running text" in str(workload.fits(given, BERTS))
    assert workload.fits(given, TOKENS) == "holds 1024 tokens; one sample is a window of 1025"
    assert workload.fits(gpt2.Parameters(sequence_length=1023), TOKENS) is None
    assert "holds running text" in str(bert.WORKLOAD.fits(bert.Parameters(predictions=20), TOKENS))
    assert workload.folder(given) == "bpe"
    assert workload.facts(TOKENS) == {"vocabulary": 50257} == workload.facts(None)
