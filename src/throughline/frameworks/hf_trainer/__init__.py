"""The framework `hf-trainer`: the unchanged `train()` of the Trainer in Hugging Face's transformers.

This file imports no PyTorch.
"""

from dataclasses import replace

from throughline.frameworks import torch

FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="hf_trainer.rank:HfTrainer",
    library="transformers",
    calls=False,
    jobs=True,
    features=torch.FRAMEWORK.features - {"graph", "tensor", "unpadded", "convergence"},
    reasons={
        "graph": "the Trainer records no CUDA graph",
        "tensor": "the Trainer has a whole model on every device; options.sharding splits its weights",
        "unpadded": "the Trainer's loader makes batches of equally long samples",
        "convergence": "the Trainer keeps its own checkpoints, in its own loop",
    },
)
