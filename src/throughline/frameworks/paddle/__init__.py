"""The framework `paddle`: PaddlePaddle's DataParallel. This file describes it and imports no Paddle."""

from throughline.frameworks.description import TRAINS, Framework

KEPT = "in a compiled graph Paddle does not recompute activations: it keeps them in memory"

FRAMEWORK = Framework(
    rank="paddle.rank:Paddle",
    library="paddle",
    packages=("paddlepaddle", "paddlepaddle-gpu"),
    accelerators={
        "cuda": "import json, paddle; n = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0; "
        "print(json.dumps({'count': n, 'name': paddle.device.cuda.get_device_name(0) if n else None, "
        "'fp16': n > 0 and paddle.device.cuda.get_device_capability(0) >= (6, 0)}))"
    },
    features=TRAINS | {"bf16", "compile", "activation_checkpointing"},
    gpus_only=frozenset({"amp", "bf16"}),
    not_compiled_with={"activation_checkpointing": KEPT},
)
