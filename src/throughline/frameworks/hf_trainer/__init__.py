"""The framework `hf-trainer`: the unchanged `train()` of the Trainer in Hugging Face's transformers.

This file imports no PyTorch.
"""

from dataclasses import replace

from throughline.frameworks import torch

LACKS = {
    "cuda_graph": "the Trainer records no CUDA graph",
    "tensor_parallel": "the Trainer keeps a whole model on every device; to split its weights, use options.sharding",
    "expert_parallel": "the Trainer keeps all experts on every device; to split its weights, use options.sharding",
    "hybrid_shard_groups": "the Trainer splits weights among all replicas",
    "selective": "the Trainer recomputes whole layers",
    "reduce_dtype": "the Trainer exchanges gradients in the type of the weights",
    "remove_padding": "the Trainer's loader makes batches of equally long samples",
    "convergence": "the Trainer keeps its own checkpoints, in its own loop",
}

FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="hf_trainer.rank:HfTrainer",
    library="transformers",
    packages=("torch", "transformers", "accelerate"),
    calls=False,
    jobs=True,
    features=torch.FRAMEWORK.features - LACKS.keys(),
    gpus_only=frozenset({"amp", "sharding"}),
    reasons=LACKS,
)
