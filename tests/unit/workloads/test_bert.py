"""BERT's shapes, FLOPs, batches, and its head on the masked positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from throughline import workloads
from throughline.files import UserError
from throughline.spec import Options, RunSpec, example
from throughline.workloads import bert

torch = pytest.importorskip("torch")

from throughline.workloads import in_torch_operations as operations  # noqa: E402
from throughline.workloads.bert import in_torch  # noqa: E402


def spec_of(sequence_length: int, predictions: int) -> RunSpec[bert.Parameters]:
    return example("bert-tiny", bert.Parameters(sequence_length, predictions))


def network(activation_checkpointing: bool = False) -> Any:
    torch.manual_seed(0)
    return in_torch.BertForPretraining(
        bert.SHAPES["bert-tiny"], 1000, dropout=0.0, activation_checkpointing=activation_checkpointing
    )


@pytest.mark.parametrize("name", ["bert-tiny", "bert-mini"])
def test_names_order_and_random_values_of_the_parameters_are_hugging_faces(name: str) -> None:
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertModel

    torch.manual_seed(7)
    shape = bert.SHAPES[name]
    own = in_torch.BertForPretraining(shape, bert.VOCABULARY, dropout=0.1, activation_checkpointing=False)
    torch.manual_seed(7)
    sizes = {"hidden_size": shape.hidden, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads}
    rows = bert.padded(bert.VOCABULARY)
    other = BertModel(BertConfig(vocab_size=rows, intermediate_size=shape.feed_forward, **sizes))
    expected, parameters = dict(other.named_parameters()), dict(own.bert.named_parameters())
    assert list(parameters) == list(expected) and list(own.bert.state_dict()) == list(other.state_dict())
    assert all(torch.equal(parameters[each], expected[each]) for each in expected)


def tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def rows() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    mask = np.ones((3, 16), "i1")
    mask[1, 10:] = 0
    positions = np.array([[1, 5, 9, 0], [2, 0, 0, 0], [3, 4, 14, 15]], "i4")
    return {
        "input_ids": draw.integers(5, 1000, (3, 16)).astype("i4") * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(16) > 7).astype("i1") * mask,
        "masked_lm_positions": positions,
        "masked_lm_ids": (draw.integers(5, 1000, (3, 4)) * (positions > 0)).astype("i4"),
        "next_sentence_labels": np.array([0, 1, 1], "i1"),
    }


def batch_of(given: dict[str, np.ndarray]) -> dict[str, Any]:
    return bert.WORKLOAD.batch(given, Options())


def test_loss_and_every_gradient_are_those_of_transformers() -> None:
    """In double precision, with padding and unused predictions. The reference of an equivalence check is this model;
    transformers' own computes the scores of all positions."""
    from throughline.workloads.bert import in_transformers

    spec = example("bert-tiny", bert.Parameters(16, 4), options=Options(dropout=0.0))
    forms: list[Any] = [in_torch.FORM, in_transformers.FORM]
    networks = [form.build(spec, {"vocabulary": 1000}).double() for form in forms]
    with torch.no_grad():
        for name, one in networks[0].named_parameters():  # so that every bias, norm and gelu affects the loss
            gain = one.ndim == 1 and "norm" in name.lower() and name.endswith("weight")
            one.copy_(3 * one if one.ndim > 1 else 0.2 * torch.randn_like(one) + float(gain))
    forms[1].load(networks[1], forms[0].weights(networks[0]))
    losses, gradients = [], []
    for form, each in zip(forms, networks, strict=True):
        losses.append(each(**tensors(batch_of(rows()))))
        losses[-1].backward()
        for parameter in each.parameters():
            parameter.data = parameter.grad
        gradients.append(form.weights(each))
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    norms = {name: np.linalg.norm(gradient) for name, gradient in gradients[0].items()}
    assert len(norms) == 46 and gradients[1].keys() == norms.keys()
    zero = [name for name, norm in norms.items() if norm < 1e-6 * max(norms.values())]
    assert len(zero) == 2 and all(name.endswith("key.bias") for name in zero)
    for name, gradient in gradients[1].items():
        least = max(norms[name], 1e-6 * max(norms.values()))
        assert np.linalg.norm(gradient - gradients[0][name]) < 1e-9 * least, name


def test_held_out_data_are_looked_at_whichever_kernel_the_step_is_pinned_to() -> None:
    model, batch = network(), tensors(batch_of(rows()))
    free = in_torch.FORM.sums(model, batch)
    for module in model.modules():
        module.dropout = 0.5
    model.half_type = torch.bfloat16
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        pinned = in_torch.FORM.sums(model, batch)
    assert pinned == free and pinned["masked"] == 8


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_the_losss_gradient_is_that_of_cross_entropy_also_where_it_is_small(kind: Any) -> None:
    """fp16 has no number below 6e-8, so without scaling most of these gradients would vanish."""
    count, scale = 2 * operations.CACHED // 5000 + 7, 2.0**14
    scores, labels = torch.randn(count, 5000), torch.randint(5000, (count,))
    weights = (torch.arange(count) % 5 > 0).float()
    ours, theirs = scores.to(kind).requires_grad_(), scores.to(kind).float().requires_grad_()
    loss = operations.MEAN(ours, labels, weights)
    true = (torch.nn.functional.cross_entropy(theirs, labels, reduction="none") * weights).sum() / weights.sum()
    torch.testing.assert_close(loss, true)
    (loss * scale).backward()
    (true * scale).backward()
    assert ours.grad is not None and theirs.grad is not None and ours.grad.dtype == kind
    rounding = 4 * torch.finfo(kind).eps
    torch.testing.assert_close(ours.grad.float(), theirs.grad, rtol=rounding, atol=rounding * 1e-2)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_keeps_its_share_and_the_mean(p: float) -> None:
    torch.manual_seed(5)
    given = torch.ones(1000, 301, requires_grad=True)
    out = operations.dropped(given, p)
    out.sum().backward()
    assert given.grad is not None and torch.equal(given.grad, out.detach())
    kept = out.detach() != 0
    assert float(kept.float().mean()) == pytest.approx(1 - p, abs=0.005)
    assert float(out.detach().mean()) == pytest.approx(1, abs=0.01)
    rows_kept = kept.float().mean(1)
    assert float(rows_kept.std()) == pytest.approx((p * (1 - p) / 301) ** 0.5, rel=0.15), "draws depend on each other"


def test_attention_with_dropout_is_attention_where_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    three = [torch.randn(2, 3, 16, 64) for _ in range(3)]
    masked = torch.zeros(2, 1, 1, 16).masked_fill_(torch.arange(16) > 9, float("-inf"))
    fused = operations.attended(*three, masked, 0.0)
    monkeypatch.setattr(operations, "dropped", lambda hidden, p: hidden)
    torch.testing.assert_close(operations.attended(*three, masked, 0.1), fused)


@pytest.mark.parametrize(("kind", "near"), [(None, 1e-5), (torch.bfloat16, 2e-3)])
@pytest.mark.parametrize("activation_checkpointing", [False, True])
def test_without_padding_loss_and_gradients_are_the_same(
    kind: Any, near: float, activation_checkpointing: bool
) -> None:
    losses, gradients = [], []
    for arrays in (batch_of(rows()), bert.without_padding(batch_of(rows()))):
        model = network(activation_checkpointing)
        model.half_type = kind
        loss = model(**tensors(arrays))
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert losses[1] == pytest.approx(losses[0], rel=near)
    assert float((gradients[1] - gradients[0]).norm() / gradients[0].norm()) < 10 * near


def test_packed_samples_neither_see_nor_hold_padding() -> None:
    given = rows()
    padded, packed = batch_of(given), bert.without_padding(batch_of(given))
    ids, lengths = packed["input_ids"], packed["lengths"]
    assert "mask" not in packed
    assert ids.shape == (42,) and lengths.tolist() == [16, 16, 10], "the longest first"
    assert ids[32:].tolist() == given["input_ids"][1, :10].tolist()
    assert packed["labels"].tolist() == given["masked_lm_ids"][[0, 2, 1]].tolist()
    full = bert.WORKLOAD.synthetic(2, spec_of(16, 4), 1)
    assert bert.without_padding(full) is full, "nothing to leave out"
    model = network().eval()
    together, *_ = model.states(**tensors(packed))
    alone, *_ = model.states(*(torch.from_numpy(padded[name][1:2, :10]) for name in ("input_ids", "segments")))
    torch.testing.assert_close(together[32:], alone)


@pytest.mark.parametrize(
    ("real", "fault"),
    [
        (np.arange(16) != 5, "padding stands before a real token"),
        (np.zeros(16), "padding stands before a real token"),
        (np.arange(16) < 2, "a prediction stands on padding"),
    ],
)
def test_samples_that_cannot_be_packed_are_refused(real: np.ndarray, fault: str) -> None:
    given = rows()
    given["input_mask"][1] = real
    with pytest.raises(ValueError, match=fault):
        bert.without_padding(batch_of(given))


@pytest.mark.slow
def test_a_gpus_kernels_take_packed_samples_and_one_code_serves_all_numbers_of_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The meta device checks the shapes and types that a GPU's kernels would get, also compiled. It has no numbers.

    The losses stay eager, because on that device a compiled cross entropy has no backward pass.
    """
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    model = in_torch.BertForPretraining(bert.SHAPES["bert-tiny"], 1000, dropout=0.1, activation_checkpointing=False).to(
        "meta"
    )
    model.longest, every = 16, model.parts()
    for parts in ([], every[:-1]):
        monkeypatch.setattr(model, "parts", lambda parts=parts: parts)
        model.compile_parts(dynamic=True, backend=counter)
        for length in (10, 9, 12, 14):
            given = rows()
            given["input_mask"][1] = np.arange(16) < length
            arrays = bert.without_padding(batch_of(given))
            batch = {name: tensor.to("meta") for name, tensor in tensors(arrays).items()}
            model.zero_grad(set_to_none=True)
            loss = model(**batch)
            loss.backward()
            assert loss.shape == () and loss.dtype == torch.float32
            assert all(parameter.grad is not None for parameter in model.parameters())
    assert counter.frame_count == 2, "each part once, at the first number of tokens, for all others as well"


def test_flops_without_padding_agree_with_a_count_of_the_real_operations() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    given, model = rows(), network()
    tokens, pairs = (16 + 10 + 16) / 3, (16**2 + 10**2 + 16**2) / 3
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        model(**tensors(bert.without_padding(batch_of(given)))).backward()
    expected = 3 * bert.flops(bert.SHAPES["bert-tiny"], tokens, 4, 1000, pairs)
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-3)


def test_unused_predictions_weigh_nothing() -> None:
    model, given = network(), rows()
    before = model(**tensors(batch_of(given)))
    unused = given["masked_lm_positions"] == 0
    assert unused.sum() == 4
    given["masked_lm_ids"][unused] = 17
    assert torch.equal(model(**tensors(batch_of(given))), before)
    given["masked_lm_ids"][~unused] = 17
    assert not torch.equal(model(**tensors(batch_of(given))), before)


def test_what_travels_to_the_device_is_what_the_shard_stores() -> None:
    """The host makes no label, weight or mask. Types and bytes are those of the shard."""
    given = rows()
    batch = batch_of(given)
    assert all(np.shares_memory(batch[name], given[stored]) for name, (stored, _) in bert.ARRAYS.items())
    wide = {name: array.astype("int64") for name, array in given.items()}
    for name, array in batch_of(wide).items():
        assert array.dtype == batch[name].dtype and np.array_equal(array, batch[name])


def test_the_vocabulary_is_padded_and_tied() -> None:
    model = network()
    assert bert.padded(30522) == 30528 and bert.padded(64) == 64
    table = model.bert.embeddings.word_embeddings.weight
    assert table.shape == (1024, 128)
    names = [name for name, _ in model.named_parameters()]
    assert sum("word_embeddings" in name for name in names) == 1 and "bias" in names


def test_synthetic_samples_are_full_length() -> None:
    made = bert.WORKLOAD.synthetic(4, spec_of(32, 5), 1)
    assert "mask" not in made and (made["input_ids"] >= 1000).all() and made["positions"].all()


def test_an_unknown_model_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match="bert-tiny"):
        workloads.of("bert-huge")
    assert all(shape.heads >= 2 for shape in bert.SHAPES.values())
