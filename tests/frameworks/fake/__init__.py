"""`fake`: a synthetic framework in numpy. Copy this folder to begin a framework of your own
(docs/contributing/add-a-framework.md)."""

from __future__ import annotations

from throughline.frameworks.description import Framework

GPUS = '{"count": 0, "name": null, "fp16": null}'

FRAMEWORK = Framework(
    rank="fake.rank:Fake",
    library="numpy",
    packages=("numpy",),
    accelerators={"cuda": f"print({GPUS!r})"},
    features=frozenset({"devices", "gradient_accumulation", "clipping"}),
    on_gpus=lambda given: {"XLA_FLAGS": f"{given.get('XLA_FLAGS', '')} --fake".strip()},
    reasons={"convergence": "the fake framework writes no checkpoints"},
)
