"""Any language model of Hugging Face's transformers, framework-neutral: from its config.json, with random weights.

A model for masked words (`mlm`) trains on BERT's samples, a model for the next word (`clm`) on windows of GPT-2's
tokens. If the data's vocabulary is larger than the model's, each id is taken modulo the size of the model's. Ids then
name other words, but the work is the same. The rates of dropout are those of config.json. `options.dropout: 0` turns
them all off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from throughline.topology import StepSize
from throughline.workloads import Arrays, Figure, Values, bert, gpt2, key
from throughline.workloads.decoder import Decoder
from throughline.workloads.hugging_face import configuration, work

MODELS = tuple(configuration.SHAPES)
DESCRIBED = {configuration.KEY: {"type": "string"}, "task": {"enum": list(configuration.TASKS)}}
described = configuration.described
UNIT = "samples"
UNITS = {"tokens": lambda parameters: float(parameters.sequence)}
FIGURES: tuple[Figure, ...] = ()
DATA = "corpus"
LEARNS_FROM = 100
HELD_OUT: dict[str, bool] = {}
NO_PROOF: str | None = (
    "its mathematics are transformers' own code, and there is no second implementation to compare them with"
)
SETTINGS = ("architecture", "vocabulary_rows", "attention")
LIBRARIES = {
    "transformers": frozenset({
        "devices", "nodes", "amp", "bf16", "compile", "accumulation", "clipping", "checkpointing", "sharding",
    }),
}  # fmt: skip
NO_FORM = dict.fromkeys(("torch", "mxnet"), "it is transformers' own model, which hf-loop and hf-trainer train")
IGNORED = -100
"""The label that transformers gives to a position that is not predicted."""


@dataclass(frozen=True)
class Parameters:
    task: str = key("what is predicted", choices=configuration.TASKS, asked=False)
    config_sha256: str = key("SHA-256 of the model's config.json", asked=False)
    sequence: int = key(
        "tokens per sample; for masked words (`task: mlm`), a length in corpus.sequences",
        default=128,
        least=8,
        most=2**20,
        stated=True,
        unit="tokens",
    )
    predictions: int = key("masked words per sample at most", default=0, asked=False)


def complete(values: Values, section: Any) -> dict[str, Any]:
    """Return the model's task and the SHA-256 of its file, and for `mlm` how many predictions the corpus has for the
    sequence length."""
    model, sequence = values["model"], values["sequence"]
    if not isinstance(model, configuration.Model):
        model = configuration.of_shape(model)
    most = configuration.positions(configuration.read(model.file))
    if most is not None and sequence > most:
        raise ValueError(f"sequence = {sequence}: {model} is made for {most} tokens at most")
    masked = bert.complete(values, section) if model.task == "mlm" else {}
    return {"task": model.task, "config_sha256": model.sha256, **masked}


def handed(spec: Values) -> dict[str, Any]:
    """Return what ranks get beside the specification: the content of the config.json with its SHA-256."""
    return {"config": configuration.content(spec)}


def _data(parameters: Parameters) -> Any:
    """Return the workload whose data these parameters read."""
    return bert if parameters.task == "mlm" else gpt2


def folder(parameters: Parameters) -> str:
    return str(_data(parameters).folder(parameters))


def fits(parameters: Parameters, manifest: Values) -> str | None:
    fault: str | None = _data(parameters).fits(parameters, manifest)
    return fault


def facts(manifest: Values | None) -> dict[str, Any]:
    """Return the size of the data's vocabulary; None for made-up batches, which use the model's own."""
    return {"vocabulary": int(manifest["vocabulary"]["size"]) if manifest else None}


def batch(rows: Arrays, options: Values) -> Arrays:
    """Return the arrays that one step needs, by transformers' names.

    For the next word: input_ids [B, S]. For masked words: input_ids, attention_mask, token_type_ids and labels, all
    [B, S]. A label is IGNORED unless its word is predicted.
    """
    import numpy as np

    if "tokens" in rows:
        return {"input_ids": rows["tokens"][:, :-1]}
    labels = np.full(rows["input_ids"].shape, IGNORED, np.int32)
    sample, place = np.nonzero(rows["masked_lm_positions"])
    labels[sample, rows["masked_lm_positions"][sample, place]] = rows["masked_lm_ids"][sample, place]
    return {
        "input_ids": rows["input_ids"],
        "attention_mask": rows["input_mask"],
        "token_type_ids": rows["segment_ids"],
        "labels": labels,
    }


def synthetic(count: int, spec: Values, seed: int) -> Arrays:
    """Return samples of full length, with words that are drawn uniformly from the model's vocabulary."""
    import numpy as np

    draw, shape = np.random.Generator(np.random.Philox(key=seed)), (count, spec["sequence"])
    vocabulary = configuration.vocabulary(configuration.content(spec))
    made = {"input_ids": draw.integers(0, vocabulary, shape, np.int32)}
    if spec["task"] == "mlm":
        predicted = draw.permuted(np.tile(np.arange(spec["sequence"]), (count, 1)), axis=1) < spec["predictions"]
        made["labels"] = np.where(predicted, draw.integers(0, vocabulary, shape, np.int32), np.int32(IGNORED))
    return made


def counts(rows: Arrays) -> tuple[int, ...]:
    return () if "tokens" in rows else bert.counts(rows)


def counted(sums: tuple[int, ...], samples: int, spec: Values) -> dict[str, float]:
    return bert.counted(sums, samples, spec) if sums else {"real_token_share": 1.0}


def flops_per_sample(spec: Values, facts: Values, counted: Values) -> float | str:
    """Return the FLOPs with attention counted in full."""
    return _flops(spec, causal=False)


def causal_flops_per_sample(spec: Values) -> float | str:
    """Return the FLOPs with only the attention that the causal mask and a sliding window let through."""
    if spec["task"] != "clm":
        return "positions see each other in both directions"
    return _flops(spec, causal=True)


def decoder(spec: Values) -> Decoder | None:
    """Return the model's FLOPs by parts; None if it is no decoder or its FLOPs are not known."""
    return work.decoder(configuration.content(spec), spec["sequence"]) if spec["task"] == "clm" else None


def _flops(spec: Values, causal: bool) -> float | str:
    batch = StepSize.of_spec(spec).batch_per_replica
    return work.trained(configuration.content(spec), spec["task"], spec["sequence"], batch, causal=causal)


def convention(spec: Values) -> dict[str, str]:
    sequence = spec["sequence"]
    head = {
        "clm": f"the vocabulary head on all {sequence} positions; the last one has no next word, and no loss",
        "mlm": f"the vocabulary head on all {sequence} positions, as transformers computes it, though at most "
        f"{spec['predictions']} are predicted",
    }
    return {
        "flops": "3 x forward, a multiply-add is 2; matrix products only, from the numbers of config.json: no "
        "embedding look-ups, norms, rotary embeddings, softmax, loss or optimizer",
        "attention": f"full: each of the {sequence} positions counts as attending to all. For a decoder, mfu_causal "
        "counts only the pairs of positions that its mask and its sliding window let through",
        "tokens": f"a sample has {sequence} tokens",
        "head_positions": head[spec["task"]],
    }


def look(sums: Values) -> dict[str, float]:
    return {}
