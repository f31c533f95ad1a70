"""BERT pre-training in MXNet: GluonNLP's BERTModel, its heads on the masked positions, and the loss, as one graph."""

from __future__ import annotations

import re
from typing import Any

import gluonnlp
import mxnet as mx
import numpy as np
from gluonnlp.model.bert import BERTEncoder, BERTModel
from mxnet import gluon

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Values
from throughline.workloads.bert import ARRAYS, POSITIONS, SHAPES, Parameters, padded
from throughline.workloads.in_mxnet_form import MxnetForm

DEVIATION, NORM_EPSILON = 0.02, 1e-12
"""Standard deviation of the initial weights, and epsilon of the layer norms: Hugging Face's defaults."""
NAMES = {
    r"^bert\.embeddings\.(word|token_type)_embeddings": r"bert.\1_embed.0",
    r"^bert\.embeddings\.position_embeddings\.weight": "bert.encoder.position_weight",
    r"^bert\.embeddings\.LayerNorm": "bert.encoder.layer_norm",
    r"^bert\.encoder\.layer\.": "bert.encoder.transformer_cells.",
    r"\.attention\.self\.": ".attention_cell.proj_",
    r"\.attention\.output\.dense": ".proj",
    r"\.attention\.output\.LayerNorm": ".layer_norm",
    r"\.intermediate\.dense": ".ffn.ffn_1",
    r"\.output\.dense": ".ffn.ffn_2",
    r"\.output\.LayerNorm": ".ffn.layer_norm",
    r"^bert\.pooler\.dense": "bert.pooler",
    r"^transform\.": "bert.decoder.0.",
    r"^norm\.": "bert.decoder.2.",
    r"^bias": "bert.decoder.3.bias",
    r"^following\.": "bert.classifier.",
}
"""Replacements that turn a name of the PyTorch implementation into GluonNLP's name, applied one after the other."""


class BertForPretraining(gluon.HybridBlock):  # type: ignore[misc]
    """BERT with its heads and its loss, of shape (1,). Calling it takes the arrays of `batch`, on the device."""

    def __init__(self, model: str, vocabulary: int, dropout: float) -> None:
        super().__init__()
        sizes = SHAPES[model]
        with self.name_scope():
            encoder = BERTEncoder(
                num_layers=sizes.layers,
                units=sizes.hidden,
                hidden_size=sizes.feed_forward,
                max_length=POSITIONS,
                num_heads=sizes.heads,
                dropout=dropout,
                layer_norm_eps=NORM_EPSILON,
            )
            widths = {"units": sizes.hidden, "embed_size": sizes.hidden}
            self.bert = BERTModel(encoder, padded(vocabulary), token_type_vocab_size=2, **widths)

    def named_parameters(self) -> list[tuple[str, gluon.Parameter]]:
        """Return every weight once, with a name that is its place in the network."""
        shared = "bert.decoder.3.weight"  # the word embeddings
        return [(name, parameter) for name, parameter in self._collect_params_with_prefix().items() if name != shared]

    def hybrid_forward(  # type: ignore[no-untyped-def]
        self, F, tokens, segments, positions, labels, weights, following, lengths=None
    ) -> Any:
        _, _, order, scores = self.bert(tokens, segments, lengths, positions)
        losses = -F.pick(F.log_softmax(scores.reshape((-3, 0))), labels)
        masked = F.broadcast_div(F.sum(losses * weights), F.maximum(F.sum(weights), 1.0))
        return masked + F.mean(-F.pick(F.log_softmax(order), following))


class BertInMxnet(MxnetForm[Parameters, BertForPretraining]):
    lacks = {
        "bf16": "MXNet trains no BERT in bf16",
        "activation_checkpointing": "GluonNLP's BERT recomputes no activations",
        "remove_padding": "GluonNLP's BERT computes padding as well",
    }

    def build(self, spec: RunSpec[Parameters], facts: Values, at: mx.Context | None = None) -> BertForPretraining:
        network = BertForPretraining(spec.model, facts["vocabulary"], spec.options.dropout)
        network.predictions = spec.parameters.predictions
        network.initialize(mx.init.Normal(DEVIATION), ctx=at)
        network.hybridize(static_alloc=True, static_shape=True)
        return network

    def batch(self, arrays: Arrays) -> list[Any]:
        """GluonNLP takes a weight for each prediction, and lengths instead of a mask."""
        tokens, segments, positions, labels, following = (arrays[name] for name in ARRAYS if name != "mask")
        weights = (positions != 0).astype(np.float32).reshape(-1)
        batch = [tokens, segments.astype(np.int32), positions, labels.reshape(-1), weights, following.astype(np.int32)]
        return [*batch, arrays["mask"].sum(1, dtype=np.float32)] if "mask" in arrays else batch

    def name(self, common: str, parameters: dict[str, Any]) -> str:
        """Return GluonNLP's name of a weight. The weight and bias of its norms are named gamma and beta."""
        name = common
        for pattern, there in NAMES.items():
            name = re.sub(pattern, there, name)
        norm = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        return norm if norm in parameters else name

    def settings(self, network: BertForPretraining) -> dict[str, Any]:
        encoder, decoder = network.bert.encoder, network.bert.decoder
        first = encoder.transformer_cells[0]
        return {
            "predictions": network.predictions,
            "parameters": sum(parameter.data().size for _, parameter in network.named_parameters()),
            "vocabulary_rows": network.bert.word_embed[0].weight.shape[0],
            "vocabulary_head": "masked positions, sharing the word embeddings",
            "gelu": "tanh" if decoder[1]._approximate else "erf",
            "norm_epsilon": encoder._layer_norm_eps,
            "attention": "products and softmax by themselves",  # GluonNLP's interleaved_matmul_selfatt, masked or not
            "dropout": [first._dropout, first.attention_cell._dropout],
            "loss": "mean over masked tokens + mean over next-sentence labels, of each rank",
        }

    def versions(self) -> dict[str, str | None]:
        return {"gluonnlp": gluonnlp.__version__}

    def sums(self, network: BertForPretraining, batch: list[Any]) -> dict[str, float]:
        """Return the sums of losses and right answers over masked tokens (mlm) and over samples (nsp), of GluonNLP's
        own forward pass: the compiled graph has the shapes of training."""
        tokens, segments, positions, labels, weights, following, *lengths = batch
        network.bert.hybridize(False)  # the graph that trains belongs to the whole network, and stays
        _, _, order, scores = network.bert(tokens, segments, lengths[0] if lengths else None, positions)
        scores = scores.reshape((-3, 0))
        masked, right, first = (array.asnumpy().astype(np.float64) for array in (weights, labels, following))

        def losses(scores: Any, labels: Any) -> Any:
            return -mx.nd.pick(mx.nd.log_softmax(scores.astype("float32")), labels).asnumpy().astype(np.float64)

        values = {
            "mlm_loss": losses(scores, labels) * masked,
            "mlm_right": (scores.argmax(axis=1).asnumpy() == right) * masked,
            "masked": masked,
            "nsp_loss": losses(order, following),
            "nsp_right": order.argmax(axis=1).asnumpy() == first,
        }
        return {**{name: float(value.sum()) for name, value in values.items()}, "samples": float(len(first))}


FORM = BertInMxnet()
