"""The framework `hf-trainer`: the unchanged `train()` of the Trainer in Hugging Face's transformers.

This file imports no PyTorch.
"""

from dataclasses import replace

from throughline.frameworks import torch

FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="hf_trainer.rank:HfTrainer",
    library="transformers",
    packages=("torch", "transformers", "accelerate"),
    calls=False,
    jobs=True,
    features=torch.FRAMEWORK.features
    - {"graph", "tensor", "unpadded", "convergence", "half_exchange", "selective", "replicate", "experts"},
    gpus_only=frozenset({"amp", "sharding"}),
    reasons={
        "graph": "the Trainer records no CUDA graph",
        "tensor": "the Trainer keeps a whole model on every device; to split its weights, use options.sharding",
        "experts": "the Trainer keeps all experts on every device; to split its weights, use options.sharding",
        "replicate": "the Trainer splits weights among all replicas",
        "selective": "the Trainer recomputes whole layers",
        "half_exchange": "the Trainer exchanges gradients in the type of the weights",
        "unpadded": "the Trainer's loader makes batches of equally long samples",
        "convergence": "the Trainer keeps its own checkpoints, in its own loop",
    },
)
