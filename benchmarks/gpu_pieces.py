"""Pieces of a training step alone: attention by each of PyTorch's kernels, a vocabulary head's loss, and an update.

    python benchmarks/gpu_pieces.py                  on a GPU, about a minute
    python benchmarks/gpu_pieces.py --device cpu     tiny pieces, to try it

They say which piece to look at if a whole step falls short. Attention and head are timed with their backward passes.
The table has each piece's FLOPs, or the bytes that it has to read and write, per second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import harness

SECONDS = 0.3
"""A piece is timed for about so long, after three calls that do not count."""
BACKWARD = 2.5
"""The matrix products of attention's backward pass over those of its forward pass: five instead of two, because the
scores are computed again (Dao et al. 2022)."""


@dataclass(frozen=True)
class Shape:
    """The attention of a layer: `batch` samples of `length` positions, `heads` heads of `width` numbers.

    masked: half of the samples have padding at their end, which a mask leaves out. in_a_row: the samples have lengths
    from a quarter of `length` on, and lie in a row without padding.
    """

    name: str
    batch: int
    heads: int
    length: int
    width: int
    causal: bool = False
    dropout: float = 0.0
    masked: bool = False
    in_a_row: bool = False

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each sample."""
        if self.in_a_row:
            return [self.length * (3 * sample + self.batch) // (4 * self.batch) or 1 for sample in range(self.batch)]
        return [self.length] * self.batch

    @property
    def flops(self) -> float:
        """The FLOPs of forward and backward pass; a multiply-add is 2."""
        pairs = sum(length**2 for length in self.lengths) / (2 if self.causal else 1)
        return (1 + BACKWARD) * 4 * pairs * self.heads * self.width


@dataclass(frozen=True)
class Update:
    """One update of an optimizer: a Transformer's matrices of `layers` layers of `hidden`, and a table of `words`."""

    name: str
    layers: int
    hidden: int
    words: int

    @property
    def shapes(self) -> list[tuple[int, int]]:
        wide = 4 * self.hidden
        layer = [(self.hidden, self.hidden)] * 4 + [(wide, self.hidden), (self.hidden, wide)]
        return [*(layer * self.layers), (self.words, self.hidden)]

    @property
    def parameters(self) -> int:
        return sum(rows * columns for rows, columns in self.shapes)


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
        Shape("BERT-base, 64 x 512, a mask", 64, 12, 512, 64, masked=True),
        Shape("BERT-base, 64 x 128 to 512, in a row", 64, 12, 512, 64, in_a_row=True),
        Shape("GPT-2, 32 x 1,024", 32, 12, 1024, 64, causal=True),
    )
    head: tuple[Head, ...] = (Head("GPT-2, 32 x 1,024", 32 * 1024, 768, 50304),)
    update: tuple[Update, ...] = (Update("BERT-base", 12, 768, 30528),)


TINY = Pieces(
    (
        Shape("tiny", 2, 2, 32, 16), Shape("tiny, causal", 2, 2, 32, 16, causal=True),
        Shape("tiny, a mask", 2, 2, 32, 16, masked=True), Shape("tiny, in a row", 4, 2, 32, 16, in_a_row=True),
    ),
    (Head("tiny", 64, 32, 100),),
    (Update("tiny", 1, 32, 100),),
)  # fmt: skip


def pieces(asked: Pieces, device: str) -> Iterator[dict[str, Any]]:
    """Yield a line for each piece and way to compute it: what, how, ms and peak_memory_bytes, or the reason why not.

    flops and bytes: what a call has to compute, and to read and write; None if it is not what limits it.
    """
    for shape in asked.attention:
        yield from _in_a_row(shape, device) if shape.in_a_row else _attention(shape, device)
    for head in asked.head:
        yield from _head(head, device)
    for update in asked.update:
        yield from _update(update, device)


def _attention(shape: Shape, device: str) -> Iterator[dict[str, Any]]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION, "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH,
    }  # fmt: skip
    size = shape.batch, shape.heads, shape.length, shape.width
    query, keys, values = (torch.randn(size, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = None
    if shape.masked:
        mask = torch.ones(shape.batch, 1, 1, shape.length, device=device, dtype=torch.bool)
        mask[::2, ..., shape.length // 2 :] = False
    ours = _chosen(shape, device)
    for name, kind in kinds.items():

        def call(kind: Any = kind) -> None:
            with sdpa_kernel(kind):
                result = torch.nn.functional.scaled_dot_product_attention(
                    query, keys, values, mask, dropout_p=shape.dropout, is_causal=shape.causal
                )
            result.backward(result)  # type: ignore[no-untyped-call]

        how = name + " (ours)" * (name == ours)
        yield {"piece": "attention", "what": shape.name, "how": how, "flops": shape.flops, "bytes": None} | _timed(
            call, device
        )


def _in_a_row(shape: Shape, device: str) -> Iterator[dict[str, Any]]:
    """Measure our attention of samples that lie in a row, with either kernel that it can take. On a CPU it has one."""
    import torch

    from throughline.workloads.bert.in_torch import attended_apart

    ends = torch.tensor([0, *shape.lengths], device=device).cumsum(0, dtype=torch.int32)
    size = sum(shape.lengths), shape.heads, shape.width
    query, keys, values = (torch.randn(size, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    ours = _chosen(shape, device)
    for name in ("flash", "mem_efficient") if device == "cuda" else ("flash",):

        def call(flash: bool = name == "flash") -> None:
            result = attended_apart(query, keys, values, ends, shape.length, shape.dropout, flash)
            result.backward(result)  # type: ignore[no-untyped-call]

        how = name + " (ours)" * (name == ours)
        yield {"piece": "attention", "what": shape.name, "how": how, "flops": shape.flops, "bytes": None} | _timed(
            call, device
        )


def _chosen(shape: Shape, device: str) -> str:
    """Return the kernel that a run of ours takes for this shape, in bf16."""
    import torch

    from throughline.workloads import in_torch_attention

    if device == "cpu":
        return in_torch_attention.on_cpu(shape.dropout).name
    asked = in_torch_attention.Asked(
        "bf16", shape.heads, shape.width, shape.length, shape.dropout, shape.masked, shape.in_a_row
    )
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

    flops = 6.0 * head.positions * head.hidden * head.words
    for name, call in (("in chunks (ours)", in_chunks), ("whole scores", whole)):
        yield {"piece": "head", "what": head.name, "how": name, "flops": flops, "bytes": None} | _timed(call, device)


def _update(update: Update, device: str) -> Iterator[dict[str, Any]]:
    """Measure one update. Adam has to read weights, gradients and two states, and to write all but the gradients."""
    import torch

    from throughline.frameworks.torch.lamb import Lamb

    weights = [torch.zeros(shape, device=device, requires_grad=True) for shape in update.shapes]
    for weight in weights:
        weight.grad = torch.full_like(weight, 1e-3)
    ways: dict[tuple[str, str], Callable[[], Any]] = {
        ("AdamW", "fused (ours)"): lambda: torch.optim.AdamW(weights, fused=True),
        ("AdamW", "foreach"): lambda: torch.optim.AdamW(weights, foreach=True),
        ("LAMB", "over lists (ours)"): lambda: Lamb(weights),
    }
    for (name, how), make in ways.items():
        optimizer = make()
        told = {"piece": "update", "what": f"{update.name}, {name}", "how": how, "flops": None}
        yield told | {"bytes": 7.0 * 4 * update.parameters} | _timed(optimizer.step, device)


def _timed(call: Callable[[], Any], device: str) -> dict[str, Any]:
    """Return the milliseconds of a call and the most memory that it takes, or why it cannot be made.

    Many calls follow each other before the device is waited for. So a small piece does not count the host's wait.
    """
    import torch

    gpu = device == "cuda"

    def taken(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    try:
        taken(3)
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        calls, seconds = 1, taken(1)
        while seconds < SECONDS:
            calls *= 2
            seconds = taken(calls)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return {"ms": None, "peak_memory_bytes": None, "reason": reason[:200]}
    peak = torch.cuda.max_memory_allocated() if gpu else None
    return {"ms": 1000 * seconds / calls, "peak_memory_bytes": peak, "reason": None}


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    device = parser.parse_args().device
    table = harness.Table("piece", "what", "how", "ms", "TFLOP/s", "TB/s", "GB of memory", "", left=3)
    found = []
    for one in pieces(Pieces() if device == "cuda" else TINY, device):
        found.append(one)
        rates = [
            f"{one[kind] / one['ms'] / 1e9:.3g}" if one["ms"] and one[kind] else "–" for kind in ("flops", "bytes")
        ]
        memory = f"{one['peak_memory_bytes'] / 1e9:.2f}" if one["peak_memory_bytes"] else "–"
        taken = f"{one['ms']:.3f}" if one["ms"] else "–"
        table.add(one["piece"], one["what"], one["how"], taken, *rates, memory, one["reason"] or "")
    print(*slower(found), sep="\n")


if __name__ == "__main__":
    main()
