"""The models of a row made of PyTorch's own modules, trained as a short script would: `nn.TransformerEncoder` for BERT
and GPT-2, torchvision's ResNet-50; autocast, a fused optimizer, `torch.compile` around the whole model if ours is
compiled. Sizes, batches, dropout and optimizer are those of our step. The weights are others, so are the losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from throughline.workloads import bert, gpt2

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Language(nn.Module):
    """A transformer over tokens, whose head shares the table of its embeddings."""

    def __init__(self, shape: Any, words: int, length: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, shape.hidden), nn.Embedding(length, shape.hidden)
        self.segments, self.following = nn.Embedding(2, shape.hidden), nn.Linear(shape.hidden, 2)
        layer = nn.TransformerEncoderLayer(
            shape.hidden, shape.heads, 4 * shape.hidden, dropout, "gelu", batch_first=True, norm_first=causal
        )
        self.encoder = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(shape.hidden)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def states(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map tokens [B, S] to states [B, S, H]. Without segments, no position sees a later one."""
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        if segments is not None:
            hidden = self.encoder(hidden + self.segments(segments))
        else:
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
            hidden = self.encoder(hidden, mask, is_causal=True)
        normed: Tensor = self.norm(hidden)
        return normed


class Bert(Language):
    def forward(self, input_ids: Tensor, segments: Tensor, positions: Tensor, labels: Tensor, following: Tensor) -> Any:
        hidden = self.states(input_ids, segments)
        masked = hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))
        scores = masked @ self.tokens.weight.t()
        loss = cross_entropy(scores.flatten(0, 1).float(), labels.flatten())
        return loss + cross_entropy(self.following(hidden[:, 0]).float(), following)


class Gpt2(Language):
    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.states(tokens[:, :-1]) @ self.tokens.weight.t()
        return cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Pictures(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        from torchvision.models import resnet50

        self.network = resnet50(num_classes=classes).to(memory_format=torch.channels_last)

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        scores = self.network(pixels.permute(0, 3, 1, 2).float().sub(127.5).div(64.0))
        return cross_entropy(scores.float(), labels)


def network(spec: Any) -> nn.Module:
    """Return the model of a specification. ValueError if PyTorch and torchvision have none."""
    folder = spec.model.partition("-")[0]
    if folder == "bert":
        words = bert.padded(bert.VOCABULARY)
        return Bert(bert.SHAPES[spec.model], words, bert.POSITIONS, spec.options.dropout, causal=False)
    if folder == "gpt2":
        words = gpt2.padded(gpt2.VOCABULARY)
        return Gpt2(gpt2.SHAPES[spec.model], words, gpt2.POSITIONS, spec.options.dropout, causal=True)
    if spec.model == "resnet50":
        return Pictures(spec.parameters.classes)
    raise ValueError(f"PyTorch and torchvision have no {spec.model}")


class Rank:
    """What contestants.py asks of a rank: steps, waiting, and the peak of the memory."""

    own_step = False

    def __init__(self, spec: Any) -> None:
        self.spec, self.kind, self.half = spec, spec.device, HALF.get(spec.precision)
        torch.manual_seed(spec.seed)
        model = network(spec).to(spec.device)
        given, weights = spec.optimizer, list(model.parameters())
        self.optimizer: Any = (
            torch.optim.SGD(weights, given.learning_rate, given.momentum, weight_decay=given.weight_decay, fused=True)
            if given.name == "sgd"
            else torch.optim.AdamW(
                weights, given.learning_rate, given.betas, given.epsilon, given.weight_decay, fused=True
            )
        )
        self.model: Any = torch.compile(model) if spec.options.compile else model

    def batch(self, arrays: dict[str, Any]) -> dict[str, Tensor]:
        """Return a batch on the device. All whole numbers but pixels become i8, as PyTorch's modules want them."""
        tensors = {name: torch.from_numpy(array.astype("i8" if name != "pixels" else "u1"))
                   for name, array in arrays.items()}  # fmt: skip
        return {name: tensor.to(self.kind) for name, tensor in tensors.items()}

    def step(self, batches: list[dict[str, Tensor]]) -> Tensor:
        (batch,) = batches
        with torch.autocast(self.kind, self.half, enabled=self.half is not None):
            loss: Tensor = self.model(**batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def sync(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def memory(self) -> dict[str, int | None]:
        return {"reserved_bytes": torch.cuda.max_memory_reserved() if self.kind == "cuda" else None}
