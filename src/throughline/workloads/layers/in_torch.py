"""Layers of Transformers in PyTorch: the layers of Hugging Face's transformers, with configurations made here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from throughline.spec import RunSpec
from throughline.workloads import Form, Unsupported, Values, in_torch_timed
from throughline.workloads.layers import HEADS, HIDDEN, INNER, Parameters, forward_flops, in_torch_fp8


class Layer(nn.Module):
    """A layer and its input. Calling it drops the gradients and makes a forward and backward pass of a batch."""

    def __init__(self, spec: RunSpec[Parameters], at: torch.device) -> None:
        super().__init__()
        self.fp8 = spec.precision == "fp8"
        dtype = torch.bfloat16 if self.fp8 else in_torch_timed.dtype(spec)
        self.min_seconds, self.at = float(spec.parameters.min_seconds), at
        self.attention, self.dropout = spec.parameters.attention, spec.options.dropout
        self.layer = hugging_face(spec.model, self.attention, self.dropout).to(at, dtype).train()
        if self.fp8:
            in_torch_fp8.use(self.layer)
        batch, sequence_length = spec.size.batch_per_replica, spec.parameters.sequence_length
        # The layer's input also needs a gradient, as it does inside a model.
        self.hidden = torch.randn(batch, sequence_length, HIDDEN, device=at).to(dtype).requires_grad_()
        # A random gradient of the output: with that of its sum, almost all gradients behind a norm would be zero.
        self.gradient = torch.randn_like(self.hidden)
        self.flops = batch * forward_flops(spec.model, sequence_length)
        self.arguments = {"encoder_hidden_states": self.hidden} if spec.model == "t5-decoder-layer" else {}

    def output(self) -> Tensor:
        """The forward pass. T5's layers return a tuple, the others a tensor."""
        result = self.layer(self.hidden, **self.arguments)
        output: Tensor = result if isinstance(result, Tensor) else result[0]
        return output

    def forward(self) -> None:
        self.layer.zero_grad()
        self.hidden.grad = None
        self.output().backward(self.gradient)  # type: ignore[no-untyped-call]


def hugging_face(model: str, attention: str, dropout: float) -> Any:
    """Return a layer with random weights; ImportError if transformers is not installed."""
    try:
        import transformers
    except ImportError:
        reason = f"{model} is a layer of transformers, which is not installed: pip install -r envs/benchmarks.txt"
        raise ImportError(reason) from None

    if model == "bert-layer":
        from transformers.models.bert.modeling_bert import BertLayer

        dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        sizes = {"hidden_size": HIDDEN, "num_attention_heads": HEADS, "intermediate_size": INNER}
        return BertLayer(transformers.BertConfig(**sizes, **dropouts, attn_implementation=attention))
    if model == "gpt2-layer":
        from transformers.models.gpt2.modeling_gpt2 import GPT2Block

        dropouts = {"resid_pdrop": dropout, "attn_pdrop": dropout}
        sizes = {"n_embd": HIDDEN, "n_head": HEADS, "n_inner": INNER}
        return GPT2Block(transformers.GPT2Config(**sizes, **dropouts, attn_implementation=attention), layer_idx=0)
    from transformers.models.t5.modeling_t5 import T5Block

    sizes = {"d_model": HIDDEN, "d_ff": INNER, "d_kv": HIDDEN // HEADS, "num_heads": HEADS}
    given = {"dropout_rate": dropout, "is_decoder": model == "t5-decoder-layer", "attn_implementation": attention}
    return T5Block(transformers.T5Config(**sizes, **given), layer_idx=0)


class LayersInTorch(Form[Parameters, Layer]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device = in_torch_timed.CPU) -> Layer:
        if spec.precision == "fp8" and spec.size.batch_per_replica * spec.parameters.sequence_length % 16:
            raise Unsupported("products in fp8 need rows and columns in multiples of 16: so batch x sequence_length")
        return Layer(spec, at)

    def settings(self, network: Layer) -> dict[str, Any]:
        return {
            "parameters": sum(parameter.numel() for parameter in network.layer.parameters()),
            "dropout": network.dropout,
            "attention": network.attention,
            **in_torch_timed.SETTINGS,
        }

    def versions(self) -> dict[str, str | None]:
        import transformers

        return {"transformers": transformers.__version__}

    def figures(self, network: Layer) -> list[tuple[str, Any, float | None]]:
        """Return for each figure: its name, None (there is no size but the batch), and the value."""
        forward = network.flops / 1e12
        return [
            ("forward", None, forward / in_torch_timed.seconds(network.output, network.min_seconds, network.at)),
            ("forward_backward", None, 3 * forward / in_torch_timed.seconds(network, network.min_seconds, network.at)),
        ]


FORM = LayersInTorch()
