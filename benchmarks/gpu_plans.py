"""What gpu.py measures: its plans in full size, and tiny ones for a dry run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from contestants import specification
from gpu_pieces import TINY, Pieces

if TYPE_CHECKING:
    from throughline.spec import RunSpec


NO_PIECES = Pieces((), (), ())


@dataclass(frozen=True)
class Row:
    """A line of the table. gpu_expected.py says what a card should reach in it.

    limit_s: seconds for all contestants, which get ready one after the other. On an H200, a compiled step was ready
    after 25 s (BERT-base), 20 s (GPT-2) and 70 s (ResNet-50), that of transformers after 60, 50 and 60 s.
    """

    model: str
    batch: int
    precision: str
    rivals: tuple[str, ...] = ("trainer", "plain")
    limit_s: float = 50


@dataclass(frozen=True)
class Real:
    """Samples that are read from shards. If the shards are made here, a share `full` of the samples has every token,
    and the others have a random length."""

    sequence_length: int
    predictions: int
    batch: int
    full: float
    rivals: tuple[str, ...]
    shards: tuple[int, int] = (4, 8192)
    limit_s: float = 70


@dataclass(frozen=True)
class Plan:
    """What the script does: full size on a GPU, or tiny (`--dry`).

    `checks`: precision, compiled, kind of text. `matrix`: precision, compiled, recomputed, batch sizes.
    """

    model: str
    rows: list[Row]
    sequence_length: int
    predictions: int
    check_batch: int
    check_steps: int
    checks: list[tuple[str, bool, str]]
    matrix: list[tuple[str, bool, bool, list[int]]]
    real: tuple[Real, ...] = ()
    peak_sizes: tuple[int, ...] = (8192,)
    copy_bytes: int = 1 << 30
    seconds: float = 0.5
    rounds: int = 5
    card_s: float = 60
    checks_s: float = 120
    image: int = 224
    pieces: Pieces = NO_PIECES
    pieces_s: float = 120

    def spec(self, model: str, batch: int, precision: str, device: str, **given: Any) -> RunSpec:
        """Return the specification of a training run on one device, with the plan's sizes."""
        sizes = {"sequence_length": self.sequence_length, "predictions": self.predictions, "image": self.image}
        return specification(model, batch, precision=precision, device=device, label_smoothing=0.0, **sizes | given)


CHECKS = [
    *((precision, False, "full") for precision in ("fp32", "tf32", "bf16", "fp16")),
    *((precision, False, "packed") for precision in ("fp32", "bf16")),
]
COMPILED_CHECKS = [("bf16", True, "full"), ("bf16", True, "packed"), ("fp32", True, "full")]
SIZES = [32, 64, 128, 256, 512, 1024]
FEW = [32, 256]
FULL = Plan(
    model="bert-base",
    rows=[
        Row("bert-base", 256, "bf16", ("trainer", "plain", "plain compiled"), limit_s=180),
        Row("bert-base", 32, "bf16", ("trainer", "plain", "ours again", "recorded")),
        Row("bert-large", 256, "bf16", ("trainer", "plain"), limit_s=60),
        Row("bert-base", 256, "tf32", ("trainer", "plain")),
        Row("bert-base", 256, "fp32", ("plain",)),
    ],
    sequence_length=128, predictions=20, check_batch=32, check_steps=8, checks=CHECKS + COMPILED_CHECKS,
    matrix=[
        ("bf16", False, False, SIZES), ("fp16", False, False, SIZES), ("tf32", False, False, SIZES),
        ("fp32", False, False, SIZES), ("bf16", False, True, SIZES), ("bf16", True, False, SIZES),
        ("tf32", True, False, FEW), ("fp32", True, False, FEW), ("fp16", True, False, FEW), ("bf16", True, True, FEW),
        ("tf32", False, True, FEW), ("fp32", False, True, FEW), ("fp16", False, True, FEW),
        ("tf32", True, True, FEW), ("fp32", True, True, FEW), ("fp16", True, True, FEW),
    ],
    peak_sizes=(4096, 8192, 12288), checks_s=90,
    real=(
        Real(128, 20, 256, full=0.8, rivals=("resident", "without padding", "full length")),
        Real(
            512, 80, 64, full=0.4, rivals=("without padding", "without padding, not compiled"), shards=(2, 2048),
            limit_s=60,
        ),
    ),
)  # fmt: skip
PICTURES = [64, 128, 256, 512]
RESNET = Plan(
    model="resnet50",
    rows=[
        Row("resnet50", 256, "bf16", ("plain", "plain compiled", "ours again", "recorded"), limit_s=320),
        Row("resnet50", 256, "tf32", ("plain",), limit_s=80),
        Row("resnet50", 128, "fp32", ("plain",), limit_s=60),
    ],
    sequence_length=0, predictions=0, check_batch=32, check_steps=2,
    checks=[*CHECKS[:4], ("bf16", True, "full"), ("fp32", True, "full")],
    matrix=[
        ("bf16", True, False, PICTURES), ("bf16", False, False, PICTURES), ("fp16", True, False, PICTURES[1:3]),
        ("tf32", True, False, PICTURES[1:3]), ("fp32", True, False, PICTURES[1:2]),
    ],
)  # fmt: skip
SOME = [8, 16, 32, 64]
GPT2 = Plan(
    model="gpt2-small",
    rows=[
        Row("gpt2-small", 32, "bf16", ("trainer", "plain compiled"), limit_s=160),
        Row("gpt2-small", 64, "bf16", ("plain compiled", "ours again"), limit_s=75),
        Row("gpt2-small", 16, "bf16", ("plain compiled",), limit_s=60),
        Row("gpt2-medium", 16, "bf16", ("plain compiled",), limit_s=80),
    ],
    sequence_length=1024, predictions=0, check_batch=4, check_steps=8,
    checks=[*CHECKS[:4], ("bf16", True, "full")],
    matrix=[
        ("bf16", True, False, SOME), ("bf16", True, True, SOME), ("bf16", False, False, SOME),
        ("tf32", True, False, [8, 16]), ("fp16", True, False, [8, 16]), ("fp32", True, False, [8]),
    ],
)  # fmt: skip
DRY = Plan(
    model="bert-tiny",
    rows=[
        Row("bert-tiny", 2, "bf16", limit_s=240), Row("bert-tiny", 2, "tf32", ()),
        *(Row(model, 2, "bf16", ("plain",), limit_s=240) for model in ("gpt2-tiny", "resnet-tiny")),
    ],
    sequence_length=32, predictions=5, check_batch=2, check_steps=2, checks=CHECKS,
    matrix=[
        ("bf16", False, False, [2, 4, 1 << 34, 1 << 35]), ("tf32", False, False, [2]), ("fp32", False, True, [2]),
    ],
    real=(
        Real(32, 5, 4, full=0.8, rivals=("resident", "without padding", "full length"), shards=(2, 64), limit_s=240),
    ),
    seconds=0.01, rounds=2, peak_sizes=(128,), copy_bytes=1 << 22, card_s=240, checks_s=240, image=64,
)  # fmt: skip
DRY_GPT2 = replace(
    DRY, model="gpt2-tiny", rows=[Row("gpt2-tiny", 2, "bf16", ("plain",), limit_s=240)], checks=CHECKS[:3:2],
    matrix=[("bf16", False, True, [2])], real=(),
)  # fmt: skip
DRY_RESNET = replace(
    DRY, model="resnet-tiny", rows=[Row("resnet-tiny", 2, "bf16", ("plain",), limit_s=240)], checks=CHECKS[:3:2],
    check_batch=4, matrix=[("bf16", False, False, [2])], real=(),
)  # fmt: skip
WAYS = ("eager", "auto", "recorded", "lamb", "ours again")
"""Other ways to make our own step: each is compared with the compiled step without a graph."""
STEPS = Plan(
    model="bert-base",
    rows=[
        Row("bert-base", 32, "bf16", WAYS, limit_s=140),
        Row("gpt2-small", 8, "bf16", ("eager", "recorded", "ours again"), limit_s=110),
    ],
    sequence_length=128, predictions=20, check_batch=32, check_steps=4, checks=[("bf16", True, "full")], matrix=[],
    checks_s=90, pieces_s=80, pieces=Pieces(),
)  # fmt: skip
DRY_STEPS = replace(
    DRY, rows=[Row("bert-tiny", 2, "bf16", WAYS, limit_s=300)], checks=CHECKS[:3:2], matrix=[], real=(), pieces=TINY,
)  # fmt: skip
PLANS = {
    "bert": (FULL, DRY), "gpt2": (GPT2, DRY_GPT2), "resnet50": (RESNET, DRY_RESNET), "parts": (STEPS, DRY_STEPS),
}  # fmt: skip
