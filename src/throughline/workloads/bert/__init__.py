"""BERT pre-training (masked tokens and next sentence), framework-neutral: shapes, batches, FLOPs.

The sizes are from Devlin et al. 2019 (base, large) and Turc et al. 2019 (tiny to medium).

Attention heads have a width of 64, and the feed-forward part has a width of 4 x hidden.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from throughline.spec import Options, Part, RunSpec, key
from throughline.workloads import Arrays, Values, Workload


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int

    @property
    def heads(self) -> int:
        return self.hidden // 64

    @property
    def feed_forward(self) -> int:
        return 4 * self.hidden


SHAPES = {
    "bert-tiny": Shape(2, 128),
    "bert-mini": Shape(4, 256),
    "bert-small": Shape(4, 512),
    "bert-medium": Shape(8, 512),
    "bert-base": Shape(12, 768),
    "bert-large": Shape(24, 1024),
}
VOCABULARY = 30522
"""Entries of the vocabulary of bert-base-uncased. Synthetic tokens are drawn from it."""
POSITIONS = 512
"""Length of the position table, for every sequence length."""
ALL = frozenset({"devices", "nodes", "amp", "gradient_accumulation", "clipping", "convergence"})
"""The features of every implementation."""
MODERN = ALL | {"bf16", "compile", "activation_checkpointing"}
"""The features of every implementation but MXNet's."""
ARRAYS = {
    "input_ids": ("input_ids", "int32"),
    "segments": ("segment_ids", "int8"),
    "mask": ("input_mask", "int8"),
    "positions": ("masked_lm_positions", "int32"),
    "labels": ("masked_lm_ids", "int32"),
    "following": ("next_sentence_labels", "int8"),
}
"""Map each array that goes to the device to its name in a shard (NVIDIA's layout) and its type."""


@dataclass(frozen=True)
class Parameters(Part):
    sequence_length: int = key(
        "tokens per sample: a length in corpus.sequences", default=128, least=8, most=65536, stated=True, unit="tokens"
    )
    predictions: int = key("masked tokens per sample at most", default=20, least=1, asked=False, stated=True)


def padded(vocabulary: int) -> int:
    """Pad the size of a vocabulary to a multiple of 64, with which matrix units are faster."""
    return -(-vocabulary // 64) * 64


def leaves_padding_out(spec: RunSpec[Parameters]) -> bool:
    return spec.options.remove_padding is True and spec.options.data == "real"


def flops(shape: Shape, sequence_length: float, predictions: int, vocabulary: int, pairs: float | None = None) -> float:
    """Return the FLOPs to train on one sample of `sequence_length` tokens: 3 x forward, matrix products only.

    A multiply-add is 2. For each product in the forward pass, the backward pass has two (Kaplan et al. 2020, section
    2.1; Narayanan et al. 2021, appendix). The vocabulary head computes only the `predictions` masked positions.
    Recomputed activations do not count. `pairs` is how many pairs of tokens attend to each other: by default sequence x
    sequence; for packed samples of several lengths, the mean of the lengths' squares.
    """
    hidden = shape.hidden
    projections = 4 * 2 * sequence_length * hidden * hidden
    attention = 2 * 2 * (sequence_length * sequence_length if pairs is None else pairs) * hidden
    feed_forward = 2 * 2 * sequence_length * hidden * shape.feed_forward
    pooler_and_next = 2 * hidden * hidden + 2 * hidden * 2
    head = predictions * _scores(hidden, padded(vocabulary))
    return 3 * (shape.layers * (projections + attention + feed_forward) + pooler_and_next + head)


def _scores(hidden: int, rows: int) -> int:
    """Return the FLOPs of the vocabulary head at one position, forward."""
    return 2 * hidden * hidden + 2 * hidden * rows


def without_padding(arrays: Arrays) -> Arrays:
    """Return a batch without its padding: input_ids and segments [T] of all samples in a row, the longest first;
    lengths i4[B], no mask.

    A batch without a mask stays as it is. Raise ValueError if padding is not at the end of a sample, or is predicted.
    """
    import numpy as np

    if "mask" not in arrays:
        return arrays
    real = arrays["mask"] != 0
    if not real[:, 0].all() or (real[:, 1:] > real[:, :-1]).any():
        raise ValueError("padding stands before a real token: such samples cannot be packed")
    lengths = real.sum(1, dtype=np.int32)
    if (arrays["positions"] >= lengths[:, None]).any():
        raise ValueError("a prediction stands on padding: such samples cannot be packed")
    order = np.argsort(-lengths, kind="stable")
    rest = {name: array[order] for name, array in arrays.items() if name != "mask"}
    packed = {name: rest[name][real[order]] for name in ("input_ids", "segments")}
    return {**rest, **packed, "lengths": lengths[order]}


def real_shares(sums: tuple[int, ...], samples: int, sequence_length: int) -> dict[str, float]:
    """Return which share of the positions, and of the pairs of positions within a sample, is no padding."""
    tokens, pairs = sums
    positions = samples * sequence_length
    return {"real_token_share": tokens / positions, "real_pair_share": pairs / (positions * sequence_length)}


class Bert(Workload[Parameters]):
    models = tuple(SHAPES)
    parameters = Parameters
    libraries = {
        "torch": MODERN | {"sharding", "hybrid_shard_groups", "cuda_graph", "remove_padding", "reduce_dtype"},
        "transformers": MODERN | {"sharding", "hybrid_shard_groups"},
        "mxnet": ALL,
        "keras": MODERN,
        "paddle": MODERN,
    }
    units = {"tokens": lambda parameters: float(parameters.sequence_length)}
    data = "corpus"
    settings = ("predictions", "vocabulary_rows", "vocabulary_head", "gelu", "norm_epsilon", "attention")
    learns_from = 100
    held_out = {"loss": False, "mlm_accuracy": True, "nsp_accuracy": True}

    def complete(self, values: Values, section: Any) -> dict[str, Any]:
        """Return how many predictions the corpus has for the sequence length."""
        length = values["sequence_length"]
        if length not in section.sequences:
            allowed = sorted(section.sequences)
            raise ValueError(f"sequence_length = {length}: allowed: {allowed}, the lengths of corpus.sequences")
        if section.own_tokenizer:
            section.own_tokenizer.check_pairs()
        return {"predictions": section.sequences[length]}

    def folder(self, parameters: Parameters) -> str:
        return f"seq{parameters.sequence_length}"

    def fits(self, parameters: Parameters, manifest: Values) -> str | None:
        if "sequence_length" not in manifest:
            return f"holds running text; BERT reads finished samples, of {parameters.sequence_length} tokens here"
        length, predictions = manifest["sequence_length"], manifest["predictions"]
        if (length, predictions) == (parameters.sequence_length, parameters.predictions):
            return None
        needed = f"{parameters.sequence_length} with {parameters.predictions}"
        return f"holds sequences of {length} tokens with {predictions} predictions; the run needs {needed}"

    def facts(self, manifest: Values | None) -> dict[str, Any]:
        return {"vocabulary": int(manifest["vocabulary"]["size"]) if manifest else VOCABULARY}

    def batch(self, rows: Arrays, options: Options) -> Arrays:
        """Return the arrays that one step needs, from B rows of a shard, as they are stored.

        input_ids, segments, mask [B, S]; positions [B, P] within a sample; labels [B, P]; following [B]. An unused
        position is 0: the place of [CLS], which is never masked.
        """
        arrays = {name: rows[stored].astype(kind, copy=False) for name, (stored, kind) in ARRAYS.items()}
        return without_padding(arrays) if options.remove_padding is True else arrays

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        """Return a batch of `count` random samples of full length. Every token is real, so there is no mask."""
        import numpy as np

        sequence_length, predictions = spec.parameters.sequence_length, spec.parameters.predictions
        draw = np.random.Generator(np.random.Philox(key=seed))
        length = min(predictions, sequence_length - 1)
        positions = draw.permuted(np.tile(np.arange(1, sequence_length), (count, 1)), axis=1)[:, :length]
        rows = {
            "input_ids": draw.integers(1000, VOCABULARY, (count, sequence_length)),
            "input_mask": np.ones((count, sequence_length), np.int8),
            "segment_ids": np.tile(np.arange(sequence_length) >= sequence_length // 2, (count, 1)),
            "masked_lm_positions": np.sort(positions, axis=1),
            "masked_lm_ids": draw.integers(1000, VOCABULARY, (count, length)),
            "next_sentence_labels": draw.integers(0, 2, count),
        }
        return {name: array for name, array in self.batch(rows, Options()).items() if name != "mask"}

    def counts(self, rows: Arrays) -> tuple[int, ...]:
        """Count the real tokens, and the pairs of real tokens within a sample."""
        lengths = rows["input_mask"].sum(1, dtype="int64")
        return int(lengths.sum()), int(lengths @ lengths)

    def counted(self, sums: tuple[int, ...], samples: int, spec: RunSpec[Parameters]) -> dict[str, float]:
        return real_shares(sums, samples, spec.parameters.sequence_length)

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        """Return what `flops` computes. If the run leaves padding out, only real tokens count."""
        given, pairs = spec.parameters, None
        tokens: float = given.sequence_length
        if leaves_padding_out(spec):
            if not counted.keys() >= {"real_token_share", "real_pair_share"}:
                return "the run computed only real tokens, and did not count them"
            tokens, pairs = counted["real_token_share"] * tokens, counted["real_pair_share"] * tokens**2
        return flops(SHAPES[spec.model], tokens, given.predictions, facts["vocabulary"], pairs)

    def flops_beyond_model(self, spec: RunSpec[Parameters], settings: Values) -> float:
        """A vocabulary head that scores all positions does more than one that scores only the masked positions."""
        if not str(settings.get("vocabulary_head")).startswith("all positions"):
            return 0.0
        more = spec.parameters.sequence_length - spec.parameters.predictions
        return 3.0 * float(more * _scores(SHAPES[spec.model].hidden, settings["vocabulary_rows"]))

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        length, predictions = spec.parameters.sequence_length, spec.parameters.predictions
        attention = f"full: each of the {length} positions attends to all, padding included"
        tokens = f"a sample has {length} positions, padding included"
        if leaves_padding_out(spec):
            attention = "full: every real token attends to all of its sample; the mean of the lengths' squares"
            tokens = f"only the real tokens are computed: the padding to {length} positions is left out"
        return {
            "flops": "3 x forward, a multiply-add is 2; matrix products only: no embedding look-ups, norms, softmax, "
            "loss or optimizer",
            "attention": attention,
            "tokens": tokens,
            "head_positions": f"the vocabulary head on {predictions} masked positions a sample, used or not; "
            f"its rows include the padding to a multiple of 64: {padded(VOCABULARY)} with BERT's own vocabulary",
        }

    def look(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {
            "loss": sums["mlm_loss"] / sums["masked"] + sums["nsp_loss"] / sums["samples"],
            "mlm_accuracy": sums["mlm_right"] / sums["masked"],
            "nsp_accuracy": sums["nsp_right"] / sums["samples"],
        }


WORKLOAD = Bert()
