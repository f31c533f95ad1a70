"""What gpu.py measures: its plans in full size, and tiny ones for a dry run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from training_steps import specification

if TYPE_CHECKING:
    from throughline.spec import RunSpec


@dataclass(frozen=True)
class Row:
    """A line of the table. `floor`, `target` and `stretch` in samples/s are roofline estimates for one H200.

    GPT-2's floor is the highest published figure for one H100 (llm.c: 468,000 tokens/s), its target 520,000 tokens/s.
    ResNet-50's floor is also published (Lambda: 3,079 images/s on one H100). MLPerf's entries reach 7,945 per GPU.
    """

    model: str
    batch: int
    precision: str
    rivals: tuple[str, ...] = ("trainer", "plain")
    floor: int | None = None
    target: int | None = None
    stretch: int | None = None
    limit_s: float = 50
    graph: bool = False


@dataclass(frozen=True)
class Real:
    """Samples that are read from shards. If the shards are made here, a share `full` of the samples has every token,
    and the others have a random length."""

    sequence: int
    predictions: int
    batch: int
    full: float
    rivals: tuple[str, ...]
    shards: tuple[int, int] = (4, 8192)
    limit_s: float = 70


@dataclass(frozen=True)
class Plan:
    """What the script does: full size on a GPU, or tiny (`--dry`). `matrix`: precision, compiled, recomputed, batch
    sizes."""

    rows: list[Row]
    sequence: int
    predictions: int
    check: tuple[str, int]
    check_steps: int
    checks: list[tuple[str, bool, str]]
    matrix_model: str
    matrix: list[tuple[str, bool, bool, list[int]]]
    seconds: float
    rounds: int
    peak_sizes: list[int]
    copy_bytes: int
    real_model: str
    real: list[Real]
    card_s: float = 60
    checks_s: float = 90
    image: int = 224

    def spec(self, model: str, batch: int, precision: str, device: str, **given: Any) -> RunSpec:
        """Return the specification of a training run on one device, with the plan's sizes."""
        sizes = {
            "sequence": self.sequence,
            "predictions": self.predictions,
            "image": self.image,
            "label_smoothing": 0.0,
        }
        return specification(model, batch, precision=precision, device=device, **sizes | given)


CHECKS = [
    *((precision, False, "full") for precision in ("fp32", "tf32", "bf16", "fp16")),
    *((precision, False, "packed") for precision in ("fp32", "bf16")),
]
COMPILED_CHECKS = [("bf16", True, "full"), ("bf16", True, "packed"), ("fp32", True, "full")]
SIZES = [32, 64, 128, 256, 512, 1024]
FEW = [32, 256]
FULL = Plan(
    rows=[
        Row("bert-base", 256, "bf16", ("trainer", "plain", "plain compiled"), 5700, 6500, 7070, limit_s=95),
        Row("bert-base", 32, "bf16", ("trainer", "plain", "ours again"), 4300, 5400, 6000, graph=True),
        Row("bert-large", 256, "bf16", ("trainer", "plain"), 1720, 1970, 2140, limit_s=60),
        Row("bert-base", 256, "tf32", ("trainer", "plain"), 2700, 3200, None),
        Row("bert-base", 256, "fp32", ("plain",), 600, 700, None),
    ],
    sequence=128, predictions=20, check=("bert-base", 32), check_steps=8, checks=CHECKS + COMPILED_CHECKS,
    matrix_model="bert-base",
    matrix=[
        ("bf16", False, False, SIZES), ("fp16", False, False, SIZES), ("tf32", False, False, SIZES),
        ("fp32", False, False, SIZES), ("bf16", False, True, SIZES), ("bf16", True, False, SIZES),
        ("tf32", True, False, FEW), ("fp32", True, False, FEW), ("fp16", True, False, FEW), ("bf16", True, True, FEW),
        ("tf32", False, True, FEW), ("fp32", False, True, FEW), ("fp16", False, True, FEW),
        ("tf32", True, True, FEW), ("fp32", True, True, FEW), ("fp16", True, True, FEW),
    ],
    seconds=0.5, rounds=5, peak_sizes=[4096, 8192, 12288],
    copy_bytes=4 << 30, real_model="bert-base",
    real=[
        Real(128, 20, 256, full=0.8, rivals=("resident", "unpadded", "full length")),
        Real(512, 80, 64, full=0.4, rivals=("unpadded", "unpadded, not compiled"), shards=(2, 2048), limit_s=60),
    ],
)  # fmt: skip
PICTURES = [64, 128, 256, 512]
RESNET = Plan(
    rows=[
        Row("resnet50", 256, "bf16", ("plain", "plain compiled", "ours again"), 3079, 4500, limit_s=140),
        Row("resnet50", 256, "bf16", ("plain compiled",), 3079, 4500, limit_s=80, graph=True),
        Row("resnet50", 256, "tf32", ("plain",), limit_s=80),
        Row("resnet50", 128, "fp32", ("plain",), limit_s=60),
    ],
    sequence=0, predictions=0, check=("resnet50", 32), check_steps=2,
    checks=[*CHECKS[:4], ("bf16", True, "full"), ("fp32", True, "full")], matrix_model="resnet50",
    matrix=[
        ("bf16", True, False, PICTURES), ("bf16", False, False, PICTURES), ("fp16", True, False, PICTURES[1:3]),
        ("tf32", True, False, PICTURES[1:3]), ("fp32", True, False, PICTURES[1:2]),
    ],
    seconds=0.5, rounds=5, peak_sizes=[8192], copy_bytes=4 << 30, real_model="", real=[], card_s=45, checks_s=120,
)  # fmt: skip
SOME = [8, 16, 32, 64]
GPT2 = Plan(
    rows=[
        Row("gpt2-small", 32, "bf16", ("trainer", "plain compiled"), 457, 508, limit_s=120),
        Row("gpt2-small", 64, "bf16", ("plain compiled", "ours again"), 457, 508, limit_s=75),
        Row("gpt2-small", 16, "bf16", ("plain compiled",), 457, 508, limit_s=60),
        Row("gpt2-medium", 16, "bf16", ("plain compiled",), limit_s=80),
    ],
    sequence=1024, predictions=0, check=("gpt2-small", 4), check_steps=8,
    checks=[*CHECKS[:4], ("bf16", True, "full")], matrix_model="gpt2-small",
    matrix=[
        ("bf16", True, False, SOME), ("bf16", True, True, SOME), ("bf16", False, False, SOME),
        ("tf32", True, False, [8, 16]), ("fp16", True, False, [8, 16]), ("fp32", True, False, [8]),
    ],
    seconds=0.5, rounds=5, peak_sizes=[8192], copy_bytes=4 << 30, real_model="", real=[], card_s=45, checks_s=90,
)  # fmt: skip
DRY = Plan(
    rows=[Row("bert-tiny", 2, "bf16", limit_s=240), Row("bert-tiny", 2, "tf32", ())],
    sequence=32, predictions=5, check=("bert-tiny", 2), check_steps=2, checks=CHECKS, matrix_model="bert-tiny",
    matrix=[
        ("bf16", False, False, [2, 4, 1 << 34, 1 << 35]), ("tf32", False, False, [2]), ("fp32", False, True, [2]),
    ],
    seconds=0.01, rounds=2, peak_sizes=[128], copy_bytes=1 << 22, real_model="bert-tiny",
    real=[Real(32, 5, 4, full=0.8, rivals=("resident", "unpadded", "full length"), shards=(2, 64), limit_s=240)],
    card_s=240, checks_s=240,
)  # fmt: skip


DRY_GPT2 = replace(
    DRY, rows=[Row("gpt2-tiny", 2, "bf16", ("plain",), limit_s=240)], check=("gpt2-tiny", 2), checks=CHECKS[:3:2],
    matrix_model="gpt2-tiny", matrix=[("bf16", False, True, [2])], real=[],
)  # fmt: skip
DRY_RESNET = replace(
    DRY, rows=[Row("resnet-tiny", 2, "bf16", ("plain",), limit_s=240)], check=("resnet-tiny", 4), checks=CHECKS[:3:2],
    matrix_model="resnet-tiny", matrix=[("bf16", False, False, [2])], real=[], image=64,
)  # fmt: skip
PLANS = {"bert": (FULL, DRY), "gpt2": (GPT2, DRY_GPT2), "resnet50": (RESNET, DRY_RESNET)}
