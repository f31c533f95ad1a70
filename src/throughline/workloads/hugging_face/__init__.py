"""Any language model of Hugging Face's transformers, framework-neutral: from its config.json, with random weights.

A model for masked words (`mlm`) trains on BERT's samples, a model for the next word (`clm`) on windows of GPT-2's
tokens. If the data's vocabulary is larger than the model's, each id is taken modulo the size of the model's; with
`corpus.tokenizer` such a model is refused. Rates of dropout are those of config.json; `options.dropout: 0` turns them
off.

hf-loop and hf-trainer train transformers' own model. torch trains the same model as modules of our own, if it is a
decoder of an architecture that `architecture.py` knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from throughline.spec import Options, Part, RunSpec, key
from throughline.workloads import Arrays, Values, Workload, bert, gpt2
from throughline.workloads.hugging_face import architecture, configuration, memory, work
from throughline.workloads.hugging_face.architecture import Architecture
from throughline.workloads.hugging_face.library import part
from throughline.workloads.workload import Decoder, Memory

DROPOUTS = ("attention_dropout", "resid_pdrop", "embd_pdrop")
"""The keys of a decoder's config.json that are rates of dropout."""
MASKED = set(architecture.KINDS) - {"gpt_oss"}
"""Architectures whose model in transformers masks documents, as a test has shown, if position_ids begin anew."""
SYNTHETIC_DOCUMENTS = 4
"""So many documents, which are equally long, are in a synthetic sample."""
IGNORED = -100
"""The label that transformers gives to a position that is not predicted."""
SPLIT = frozenset({
    "devices", "nodes", "amp", "bf16", "compile", "gradient_accumulation", "clipping", "activation_checkpointing",
    "sharding", "hybrid_shard_groups",
})  # fmt: skip
"""The features of every implementation."""


@dataclass(frozen=True)
class Parameters(Part):
    task: str = key("what is predicted", choices=configuration.TASKS, asked=False)
    config_sha256: str = key("SHA-256 of the model's config.json", asked=False)
    sequence_length: int = key(
        "tokens per sample; with `task: mlm` a length in corpus.sequences", default=128, least=8, most=2**20,
        stated=True, unit="tokens",
    )  # fmt: skip
    predictions: int = key("masked words per sample at most", default=0, asked=False)
    attention: str = key(
        "with `task: clm`, a token sees all tokens before it in its sample, or only those of its document",
        default="sample", choices=("sample", "document"), titled=True,
    )  # fmt: skip
    attention_kernel: str = key(
        "of `torch`: a kernel of PyTorch, or single products for soft caps and sinks (`default`); or FlexAttention for "
        "windows, documents, soft caps and sinks, on GPUs with `compile`. No GPU has compared the two yet",
        default="default", choices=("default", "flex"), titled=True,
    )  # fmt: skip


def data_of(parameters: Parameters) -> tuple[Workload[Any], Any]:
    """Return the workload whose data these parameters read, and its parameters for them."""
    if parameters.task == "mlm":
        return bert.WORKLOAD, bert.Parameters(parameters.sequence_length, parameters.predictions)
    return gpt2.WORKLOAD, gpt2.Parameters(parameters.sequence_length)


def positions_in_documents(rows: Arrays) -> Any:
    """Return the place of every token in its document [B, S], i4. A window may begin within a document: its first
    place is 0 as well."""
    import numpy as np

    tokens, positions = rows["tokens"], np.arange(rows["tokens"].shape[1] - 1, dtype=np.int32)
    begins = np.zeros((len(tokens), len(positions)), np.int32)
    begins[:, 1:] = np.where(tokens[:, :-2] == rows["end_of_text"][:, None], positions[1:], 0)
    return positions - np.maximum.accumulate(begins, 1)


def with_bounds(position_ids: Any) -> Arrays:
    """Return position_ids [B, S], which tell documents apart, and the documents' bounds [documents + 1] if all samples
    lie in a row, i4."""
    import numpy as np

    begins = np.flatnonzero(position_ids == 0)
    return {"position_ids": position_ids, "bounds": np.append(begins, position_ids.size).astype(np.int32)}


def synthetic_lengths(sequence_length: int) -> list[int]:
    """Return the lengths of the documents in a synthetic sample."""
    longest = -(-sequence_length // SYNTHETIC_DOCUMENTS)
    return [min(longest, sequence_length - begin) for begin in range(0, sequence_length, longest)]


class HuggingFace(Workload[Parameters]):
    models = tuple(configuration.SHAPES)
    parameters = Parameters
    libraries = {
        "transformers": SPLIT,
        "torch": SPLIT | {"expert_parallel", "reduce_dtype", "selective", "tensor_parallel", "fp8", "rowwise"},
    }
    no_form = {"mxnet": "it is transformers' own model, which hf-loop and hf-trainer train"}
    units = {"tokens": lambda parameters: float(parameters.sequence_length)}
    data = "corpus"
    settings = ("architecture", "vocabulary_rows", "attention")
    learns_from = 100
    described = {configuration.KEY: {"type": "string"}, "task": {"enum": list(configuration.TASKS)}}

    def of_map(self, values: Values) -> configuration.Model:
        return configuration.of_map(values)

    def complete(self, values: Values, section: Any) -> dict[str, Any]:
        """Return the model's task and the SHA-256 of its file, and for `mlm` how many predictions the corpus has for
        the sequence length."""
        model, sequence_length = values["model"], values["sequence_length"]
        if not isinstance(model, configuration.Model):
            model = configuration.of_shape(model)
        if model.task == "mlm" and values.get("attention") == "document":
            raise ValueError("attention = document: a sample for masked words (`task: mlm`) has a single document")
        most = configuration.positions(configuration.read(model.file))
        if most is not None and sequence_length > most:
            raise ValueError(f"sequence_length = {sequence_length}: {model} is made for {most} tokens at most")
        rows = configuration.vocabulary(configuration.read(model.file))
        if section and section.own_tokenizer and rows is not None:
            section.own_tokenizer.check_model(str(model), rows)
            _ = section.own_tokenizer.end if model.task == "clm" else section.own_tokenizer.check_pairs()
        masked = bert.WORKLOAD.complete(values, section) if model.task == "mlm" else {}
        return {"task": model.task, "config_sha256": model.sha256, **masked}

    def content(self, spec: RunSpec[Parameters]) -> dict[str, Any]:
        """Return the content of the model's config.json. In a rank, the specification has it already."""
        return spec.content or configuration.content(spec.model, spec.parameters.config_sha256)

    def lacks_form(self, spec: RunSpec[Parameters], library: str) -> str | None:
        if library != "torch":
            if spec.parameters.attention == "document" and part(self.content(spec))["model_type"] not in MASKED:
                return "transformers' model of this architecture is not known to keep documents apart"
            return super().lacks_form(spec, library)
        try:
            self._ours(spec)
        except configuration.NotOurs as reason:
            return f"our own step does not have {reason}; hf-loop and hf-trainer train transformers' own model"
        return None

    def _ours(self, spec: RunSpec[Parameters]) -> Architecture:
        """Return what our own step trains; NotOurs if it does not train this model."""
        if spec.parameters.task != "clm":
            raise configuration.NotOurs("masked words as its task")
        content, made = part(self.content(spec)), self.architecture(spec)
        rates = {name: content[name] for name in DROPOUTS if content.get(name)}
        if rates and spec.options.dropout:
            raise configuration.NotOurs(f"dropout ({', '.join(rates)}) without `options.dropout: 0`")
        return made

    def architecture(self, spec: RunSpec[Parameters]) -> Architecture:
        return architecture.from_config(self.content(spec), spec.parameters.sequence_length)

    def lacks_reference(self, spec: RunSpec[Parameters]) -> str | None:
        lacking = self.lacks_form(replace(spec, options=replace(spec.options, dropout=0.0)), "torch")
        return f"there is no second implementation to compare it with: {lacking}" if lacking else None

    def splits(self, model: str) -> dict[str, int]:
        made = self._published(model)
        return made.splits() if made else {}

    def experts(self, model: str) -> int:
        made = self._published(model)
        return next((layer.experts.count for layer in made.layers if layer.experts), 0) if made else 0

    def _published(self, model: str) -> Architecture | None:
        """Return the architecture of a model; None if our own step does not train it. Such a run ends as unsupported,
        and says why."""
        given = model if isinstance(model, configuration.Model) else configuration.of_shape(model)
        try:
            return architecture.from_config(configuration.read(given.file), 1)
        except configuration.NotOurs:
            return None

    def folder(self, parameters: Parameters) -> str:
        workload, given = data_of(parameters)
        return workload.folder(given)

    def fits(self, parameters: Parameters, manifest: Values) -> str | None:
        workload, given = data_of(parameters)
        return workload.fits(given, manifest)

    def facts(self, manifest: Values | None) -> dict[str, Any]:
        """Return the size of the data's vocabulary; None for synthetic batches, which use the model's own."""
        return {"vocabulary": int(manifest["vocabulary"]["size"]) if manifest else None}

    def batch(self, rows: Arrays, options: Options) -> Arrays:
        """Return the arrays that one step needs, by transformers' names.

        For the next word: input_ids [B, S], and what `with_bounds` returns if documents do not see each other. For
        masked words: input_ids, attention_mask, token_type_ids and labels, all [B, S]. A label is IGNORED unless its
        word is predicted.
        """
        import numpy as np

        if "tokens" in rows:
            read = {"input_ids": rows["tokens"][:, :-1]}
            return read | with_bounds(positions_in_documents(rows)) if "end_of_text" in rows else read
        labels = np.full(rows["input_ids"].shape, IGNORED, np.int32)
        sample, position = np.nonzero(rows["masked_lm_positions"])
        labels[sample, rows["masked_lm_positions"][sample, position]] = rows["masked_lm_ids"][sample, position]
        return {
            "input_ids": rows["input_ids"],
            "attention_mask": rows["input_mask"],
            "token_type_ids": rows["segment_ids"],
            "labels": labels,
        }

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        """Return samples of full length, with words that are drawn uniformly from the model's vocabulary."""
        import numpy as np

        given, draw = spec.parameters, np.random.Generator(np.random.Philox(key=seed))
        shape, vocabulary = (count, given.sequence_length), configuration.vocabulary(self.content(spec))
        arrays = {"input_ids": draw.integers(0, vocabulary, shape, np.int32)}
        if given.task == "mlm":
            predicted = draw.permuted(np.tile(np.arange(given.sequence_length), (count, 1)), axis=1) < given.predictions
            arrays["labels"] = np.where(predicted, draw.integers(0, vocabulary, shape, np.int32), np.int32(IGNORED))
        if given.attention == "document":
            documents = [np.arange(length, dtype=np.int32) for length in synthetic_lengths(given.sequence_length)]
            arrays |= with_bounds(np.tile(np.concatenate(documents), (count, 1)))
        return arrays

    def counts(self, rows: Arrays) -> tuple[int, ...]:
        """Count the pairs of tokens that see each other, if documents do not; and for masked words what BERT counts."""
        if "tokens" not in rows:
            return bert.WORKLOAD.counts(rows)
        if "end_of_text" not in rows:
            return ()
        return (int(positions_in_documents(rows).sum(dtype="int64")) + rows["tokens"][:, :-1].size,)

    def counted(self, sums: tuple[int, ...], samples: int, spec: RunSpec[Parameters]) -> dict[str, float]:
        if spec.parameters.task == "mlm":
            return bert.real_shares(sums, samples, spec.parameters.sequence_length)
        return {"real_token_share": 1.0} | ({"seen_pairs": sums[0] / samples} if sums else {})

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        """Return the FLOPs with attention counted in full; within documents, as it is computed."""
        if spec.parameters.attention == "document":
            return self._flops_within_documents(spec, counted)
        return self._flops(spec, causal=False)

    def causal_flops_per_sample(self, spec: RunSpec[Parameters]) -> float | str:
        """Return the FLOPs with only the attention that the causal mask and a sliding window let through."""
        if spec.parameters.task != "clm":
            return "positions see each other in both directions"
        if spec.parameters.attention == "document":
            return "attention within documents is counted only where the mask lets it through anyway"
        return self._flops(spec, causal=True)

    def memory(self, spec: RunSpec[Parameters], gpu: bool) -> Memory | None:
        """Return the memory of our own step. With `options.expert_parallel` there is no prediction yet, nor in fp8."""
        predicts = spec.framework == "torch" and spec.precision in memory.BYTES and spec.options.expert_parallel == 1
        if not predicts or self.lacks_form(spec, "torch"):
            return None
        return memory.predicted(self.architecture(spec), spec, gpu)

    def decoder(self, spec: RunSpec[Parameters]) -> Decoder | None:
        """Return the model's FLOPs by parts; None if it is no decoder or its FLOPs are not known, or depend on data."""
        given = spec.parameters
        if given.task != "clm" or given.attention != "sample":
            return None
        return work.decoder(self.content(spec), given.sequence_length)

    def _flops(self, spec: RunSpec[Parameters], causal: bool) -> float | str:
        given, batch = spec.parameters, spec.size.batch_per_replica
        return work.trained(self.content(spec), given.task, given.sequence_length, batch, causal=causal)

    def _flops_within_documents(self, spec: RunSpec[Parameters], counted: Values) -> float | str:
        sequence_length = spec.parameters.sequence_length
        try:
            made = self.architecture(spec)
        except configuration.NotOurs as error:
            return f"within documents, they are known only where our own step trains the model: {error}"
        if spec.options.data == "synthetic":
            lengths = synthetic_lengths(sequence_length)
            pairs = [float(sum(map(layer.pairs, lengths))) for layer in made.layers]
        elif any(layer.window for layer in made.layers):
            return "the pairs of tokens within documents and a sliding window are not counted"
        elif "seen_pairs" not in counted:
            return "the run did not count the pairs of tokens within its documents"
        else:
            pairs = [counted["seen_pairs"]] * len(made.layers)
        parts = work.of_parts(made, sequence_length)
        return 3.0 * (parts.layers + work.attention(made, pairs) + parts.head)

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        given = spec.parameters
        head = {
            "clm": "; the last one has no next word, and no loss",
            "mlm": f", as transformers computes it, though at most {given.predictions} are predicted",
        }
        attention = {
            "sample": f"full: each of the {given.sequence_length} positions counts as attending to all. For a decoder, "
            "mfu_causal counts only the pairs of positions that its mask and its sliding window let through",
            "document": "only the pairs of tokens that see each other: of the same document, none later",
        }
        return {
            "flops": "3 x forward, a multiply-add is 2; matrix products only, from the numbers of config.json: no "
            "embedding look-ups, norms, rotary embeddings, softmax, loss or optimizer",
            "attention": attention[given.attention],
            "tokens": f"a sample has {given.sequence_length} tokens",
            "head_positions": f"the vocabulary head on all {given.sequence_length} positions{head[given.task]}",
        }


WORKLOAD = HuggingFace()
