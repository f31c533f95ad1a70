"""A contest's case in transformers: the same model with the same weights, and the same batches (contest.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from contest import SEED, Case, synthetic

from throughline import workloads


def batches(case: Case) -> list[dict[str, Any]]:
    """Return the case's batches in the form that transformers expects."""
    make = BATCHES[workloads.models()[case.model]]
    return [make(case, {name: torch.from_numpy(array) for name, array in one.items()}) for one in synthetic(case)]


def _bert_batch(case: Case, batch: dict[str, Any]) -> dict[str, Any]:
    """Return BERT's batch. `labels` [B, S] is -100 wherever nothing is predicted."""
    labels = torch.full((case.batch, case.sequence), -100)
    labels.scatter_(1, batch["positions"].long(), batch["labels"].long())
    return {
        "input_ids": batch["input_ids"].long(),
        "token_type_ids": batch["segments"].long(),
        "labels": labels,
        "next_sentence_label": batch["following"].long(),
    }


def _gpt2_batch(case: Case, batch: dict[str, Any]) -> dict[str, Any]:
    """Return GPT-2's batch with labels that are already shifted: transformers' own shift would leave out the last
    position. transformers needs `labels` as well."""
    ids = batch["tokens"].long()
    inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return {"input_ids": inputs, "labels": labels, "shift_labels": labels}


def _resnet_batch(case: Case, batch: dict[str, Any]) -> dict[str, Any]:
    """Return ResNet's batch with normalized pixels, channels last, so that the loop spends no time on this."""
    from throughline.workloads.resnet import DEVIATION, MEAN

    pixels = (batch["pixels"] - torch.tensor(MEAN)) / torch.tensor(DEVIATION)
    return {"pixel_values": pixels.permute(0, 3, 1, 2), "labels": batch["labels"].long()}


def network(case: Case) -> Any:
    """Return transformers' model with the weights from which `ours` starts."""
    torch.manual_seed(SEED)
    spec = case.spec()
    source = workloads.form(case.model, "torch").build(spec, case.facts)
    made = NETWORKS[workloads.models()[case.model]](case, source, spec.options.dropout)
    made.tie_weights()
    if spec.options.checkpointing:
        made.gradient_checkpointing_enable({"use_reentrant": False})
    return made.to(case.device).train()


def _bert(case: Case, source: Any, dropout: float) -> Any:
    from transformers import BertConfig, BertForPreTraining

    from throughline.workloads.bert import SHAPES, padded

    shape = SHAPES[case.model]
    config = BertConfig(
        vocab_size=padded(case.facts["vocabulary"]),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.feed_forward,
        use_cache=False,
    )
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    made = BertForPreTraining(config)
    made.bert.load_state_dict(source.bert.state_dict())
    heads = made.cls
    heads.predictions.transform.dense.load_state_dict(source.transform.state_dict())
    heads.predictions.transform.LayerNorm.load_state_dict(source.norm.state_dict())
    heads.seq_relationship.load_state_dict(source.following.state_dict())
    return made


def _gpt2(case: Case, source: Any, dropout: float) -> Any:
    """Return transformers' GPT-2. Its matrices are ours, transposed; query, key and value are one matrix."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from throughline.workloads.gpt2 import SHAPES

    shape, own = SHAPES[case.model], source.state_dict()
    config = GPT2Config(
        vocab_size=len(own["tokens.weight"]),
        n_positions=len(own["positions.weight"]),
        n_embd=shape.hidden,
        n_layer=shape.layers,
        n_head=shape.heads,
        use_cache=False,
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout
    made = GPT2LMHeadModel(config)
    named = {"wte.weight": own["tokens.weight"], "wpe.weight": own["positions.weight"]}
    named |= {f"ln_f.{kind}": own[f"norm.{kind}"] for kind in ("weight", "bias")}
    for number in range(shape.layers):
        for their, ours in GPT2_LAYER.items():
            for kind in ("weight", "bias"):
                whole = torch.cat([own[f"layers.{number}.{name}.{kind}"] for name in ours])
                named[f"h.{number}.{their}.{kind}"] = whole.T if whole.ndim == 2 else whole
    made.transformer.load_state_dict(named)
    return made


GPT2_LAYER = {
    "ln_1": ["attention_norm"],
    "attn.c_attn": ["query", "key", "value"],
    "attn.c_proj": ["mix"],
    "ln_2": ["feed_norm"],
    "mlp.c_fc": ["up"],
    "mlp.c_proj": ["down"],
}
"""transformers' name for a part of a layer -> our names for it."""


def _resnet(case: Case, source: Any, dropout: float) -> Any:
    from transformers import ResNetConfig, ResNetForImageClassification

    from throughline.workloads.resnet import SHAPES

    shape = SHAPES[case.model]
    config = ResNetConfig(
        embedding_size=shape.width,
        hidden_sizes=[shape.width * shape.expansion << stage for stage in range(len(shape.stages))],
        depths=list(shape.stages),
        layer_type="bottleneck" if shape.expansion > 1 else "basic",
        downsample_in_bottleneck=False,
        num_labels=1000,
    )
    made: Any = ResNetForImageClassification(config)
    # In transformers, a shortcut is the first part of a block. In our model it is the last part.
    own = [one for name, one in source.named_parameters() if "shortcut" not in name]
    theirs = [one for name, one in made.named_parameters() if "shortcut" not in name]
    own += [one for name, one in source.named_parameters() if "shortcut" in name]
    theirs += [one for name, one in made.named_parameters() if "shortcut" in name]
    with torch.no_grad():
        for their, our in zip(theirs, own, strict=True):
            their.copy_(our)
    return made.to(memory_format=torch.channels_last)


BATCHES: dict[str, Callable[[Case, dict[str, Any]], dict[str, Any]]] = {
    "bert": _bert_batch,
    "gpt2": _gpt2_batch,
    "resnet": _resnet_batch,
}
NETWORKS: dict[str, Callable[[Case, Any, float], Any]] = {"bert": _bert, "gpt2": _gpt2, "resnet": _resnet}
