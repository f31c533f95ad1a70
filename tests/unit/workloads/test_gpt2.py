"""GPT-2's shapes, FLOPs and batches, and its training step compared with Hugging Face's GPT2LMHeadModel."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from throughline.spec import Options, RunSpec, example
from throughline.workloads import bert, gpt2

torch = pytest.importorskip("torch")

from throughline.workloads.gpt2 import in_torch  # noqa: E402

VOCABULARY, SEQUENCE = 500, 24
MADE = gpt2.Shape(2, 4, 32)


def spec_of(**parameters: Any) -> RunSpec[gpt2.Parameters]:
    return example("gpt2-tiny", gpt2.Parameters(**parameters), options=Options(dropout=0.0))


def tokens() -> Any:
    drawn = np.random.default_rng(3).integers(0, VOCABULARY, (3, SEQUENCE + 1)).astype(np.uint16)
    return torch.from_numpy(drawn)


def their_loss(model: Any, batch: Any) -> Any:
    """Return the loss of the library's scores; the library itself computes it in fp32."""
    ids = batch.long()
    return torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())


@pytest.mark.parametrize(("gelu", "deviations"), [("tanh", (0.02, 0.01, 0.01)), ("erf", (0.01, 0.02, 0.02))])
def test_loss_gradients_a_step_and_held_out_sums_are_hugging_faces(gelu: str, deviations: tuple[float, ...]) -> None:
    from throughline.workloads.gpt2 import in_transformers

    positions, mix, down = deviations
    given = {"gelu": gelu, "position_init": positions, "residual_init": "scaled" if mix < 0.02 else "plain"}
    spec, forms = spec_of(sequence_length=SEQUENCE, **given), (in_torch.FORM, in_transformers.FORM)
    torch.manual_seed(0)
    networks: list[Any] = [form.build(spec, {"vocabulary": VOCABULARY}) for form in forms]
    wanted = {"positions": positions, "layers.1.mix": mix, "layers.0.down": down, "layers.0.up": 0.02, "tokens": 0.02}
    for form, each in zip(forms, networks, strict=True):
        drawn = form.weights(each)
        assert {name: drawn[f"{name}.weight"].std() for name in wanted} == pytest.approx(wanted, rel=0.03)
    weights = {name: array * np.float64(1.5) for name, array in in_torch.FORM.weights(networks[0]).items()}
    for form, each in zip(forms, networks, strict=True):
        form.load(each.double(), weights)
        back = form.weights(each)
        assert back.keys() == weights.keys() and all((back[name] == weights[name]).all() for name in weights)
    batch = {"tokens": tokens()}
    ours, theirs = (form.sums(each, batch) for form, each in zip(forms, networks, strict=True))
    assert theirs == pytest.approx(ours, rel=1e-6) and (ours["tokens"], ours["samples"]) == (3 * SEQUENCE, 3)
    for optimizer, bound in ((partial(torch.optim.SGD, lr=1.0), 1e-10), (torch.optim.AdamW, 1e-9)):
        losses, after = [], []  # a step of SGD moves each weight by its gradient
        for form, each in zip(forms, networks, strict=True):
            losses.append(their_loss(each.model, batch["tokens"]) if each is networks[1] else each(**batch))
            losses[-1].backward()
            optimizer(each.parameters()).step()
            each.zero_grad()
            after.append({name: array.copy() for name, array in form.weights(each).items()})
        torch.testing.assert_close(*losses, rtol=0, atol=1e-10)
        for name in weights:
            np.testing.assert_allclose(after[0][name], after[1][name], rtol=0, atol=bound, err_msg=name)
    stated = [form.settings(each) for form, each in zip(forms, networks, strict=True)]
    assert stated[1] == {**stated[0], "attention": "transformers: sdpa"}
    with pytest.raises(ValueError, match="weights of another network"):
        forms[1].load(networks[1], {**weights, "more": np.zeros(1)})


def test_no_position_sees_what_is_behind_it() -> None:
    """With dropout, a CPU uses our own attention with our own mask, so the test covers it as well."""
    batch, last = tokens(), VOCABULARY - 1
    for dropout in (0.0, 0.3):
        torch.manual_seed(0)
        given = gpt2.Parameters(sequence_length=SEQUENCE)
        ours = in_torch.Gpt2(MADE, VOCABULARY, given, dropout, activation_checkpointing=False)
        found: list[Any] = []
        ours.norm.register_forward_pre_hook(lambda _, taken, found=found: found.append(taken[0]))
        for changed in (False, True):
            ids = batch.long()
            ids[:, 10:] = last if changed else ids[:, 10:]
            torch.manual_seed(1)
            ours(ids)
        assert torch.equal(found[0][:, :10], found[1][:, :10]) and not torch.equal(found[0][:, 10:], found[1][:, 10:])


def test_a_batch_is_what_the_reader_gives_and_nothing_is_copied() -> None:
    rows = {"tokens": np.arange(50, dtype=np.uint16).reshape(2, 25)}
    workload, spec = gpt2.WORKLOAD, spec_of()
    assert workload.batch(rows, Options())["tokens"] is rows["tokens"]
    assert workload.counted((), 2, spec) == {"real_token_share": 1.0} and workload.counts(rows) == ()


def test_synthetic_tokens_are_of_the_vocabulary() -> None:
    spec = spec_of(sequence_length=1024)
    first = gpt2.WORKLOAD.synthetic(40, spec, 1)["tokens"]
    assert first.shape == (40, 1025) and first.dtype == np.uint16
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
    lengths = "holds sequences of 128 tokens with 20 predictions; the run needs 32 with 5"
    assert bert.WORKLOAD.fits(bert.Parameters(32, 5), BERTS) == lengths
    assert workload.folder(given) == "bpe"
    assert workload.facts(TOKENS) == {"vocabulary": 50257} == workload.facts(None)
