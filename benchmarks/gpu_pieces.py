"""Pieces of a training step alone: attention by each of PyTorch's kernels, and the loss of a vocabulary head.

They say which piece to look at if a whole step falls short. Each is timed with its backward pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SECONDS = 0.3
"""A piece is timed for about so long, after three calls that do not count."""


@dataclass(frozen=True)
class Shape:
    """The attention of a layer: `batch` samples of `length` positions, `heads` heads of `width` numbers."""

    name: str
    batch: int
    heads: int
    length: int
    width: int
    causal: bool = False
    dropout: float = 0.0


@dataclass(frozen=True)
class Head:
    """A vocabulary head: `positions` hidden states of `hidden` numbers, and `words` scores for each."""

    name: str
    positions: int
    hidden: int
    words: int


@dataclass(frozen=True)
class Pieces:
    attention: tuple[Shape, ...] = (
        Shape("BERT-base, 32 x 128", 32, 12, 128, 64),
        Shape("BERT-base, 32 x 128, dropout 0.1", 32, 12, 128, 64, dropout=0.1),
        Shape("BERT-base, 64 x 512", 64, 12, 512, 64),
        Shape("GPT-2, 32 x 1,024", 32, 12, 1024, 64, causal=True),
    )
    head: tuple[Head, ...] = (Head("GPT-2, 32 x 1,024", 32 * 1024, 768, 50304),)


TINY = Pieces(
    (Shape("tiny", 2, 2, 32, 16), Shape("tiny, causal", 2, 2, 32, 16, causal=True)), (Head("tiny", 64, 32, 100),)
)


def pieces(asked: Pieces, device: str) -> Iterator[dict[str, Any]]:
    """Yield a line for each piece and way to compute it: what, how, ms and peak_memory_bytes, or the reason why not."""
    for shape in asked.attention:
        yield from _attention(shape, device)
    for head in asked.head:
        yield from _head(head, device)


def _attention(shape: Shape, device: str) -> Iterator[dict[str, Any]]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION, "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH,
    }  # fmt: skip
    size = shape.batch, shape.heads, shape.length, shape.width
    query, keys, values = (torch.randn(size, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    ours = _chosen(shape, device)
    for name, kind in kinds.items():

        def call(kind: Any = kind) -> None:
            with sdpa_kernel(kind):
                result = torch.nn.functional.scaled_dot_product_attention(
                    query, keys, values, dropout_p=shape.dropout, is_causal=shape.causal
                )
            result.backward(result)  # type: ignore[no-untyped-call]

        yield {"piece": "attention", "what": shape.name, "how": name + " (ours)" * (name == ours)} | _timed(
            call, device
        )


def _chosen(shape: Shape, device: str) -> str:
    """Return the kernel that a run of ours takes for this shape, in bf16 without a mask."""
    import torch

    from throughline.workloads import in_torch_attention

    if device == "cpu":
        return in_torch_attention.on_cpu(shape.dropout).name
    asked = in_torch_attention.Asked("bf16", shape.heads, shape.width, shape.length, shape.dropout)
    return in_torch_attention.on_gpu(torch.cuda.get_device_capability(), asked, torch.device("cuda")).name


def slower(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each piece whose other way to compute it takes 5 % less than ours."""
    for piece, what in dict.fromkeys((one["piece"], one["what"]) for one in found):
        known = {one["how"]: one["ms"] for one in found if (one["piece"], one["what"]) == (piece, what) and one["ms"]}
        ours = next((how for how in known if how.endswith("(ours)")), None)
        best = min(known, key=lambda how: known[how], default=None)
        if ours and best and known[best] < 0.95 * known[ours]:
            taken = f"{best} takes {known[best]:.3f} ms, {ours} {known[ours]:.3f} ms"
            yield f"{piece}, {what}: {taken}. Look at why ours is taken."


def _head(head: Head, device: str) -> Iterator[dict[str, Any]]:
    import torch

    from throughline.workloads.in_torch_head import HeadLoss, errors

    def made(*size: int) -> Any:
        return torch.randn(size, device=device, dtype=torch.bfloat16).mul_(0.02).requires_grad_()

    hidden, table = made(head.positions, head.hidden), made(head.words, head.hidden)
    labels = torch.randint(head.words, (head.positions,), device=device)

    def in_chunks() -> None:
        HeadLoss.apply(hidden, table, labels, torch.float32, errors).backward()  # type: ignore[no-untyped-call]

    def whole() -> None:
        torch.nn.functional.cross_entropy((hidden @ table.t()).float(), labels).backward()  # type: ignore[no-untyped-call]

    for name, call in (("in chunks (ours)", in_chunks), ("whole scores", whole)):
        yield {"piece": "head", "what": head.name, "how": name} | _timed(call, device)


def _timed(call: Callable[[], None], device: str) -> dict[str, Any]:
    """Return the milliseconds of a call and the most memory that it takes, or why it cannot be made."""
    import torch

    gpu = device == "cuda"

    def settled() -> float:
        if gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    try:
        for _ in range(3):
            call()
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        begin, count = settled(), 0
        while settled() - begin < SECONDS:
            call()
            count += 1
        taken = settled() - begin
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return {"ms": None, "peak_memory_bytes": None, "reason": reason[:200]}
    peak = torch.cuda.max_memory_allocated() if gpu else None
    return {"ms": 1000 * taken / count, "peak_memory_bytes": peak, "reason": None}
