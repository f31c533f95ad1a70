"""The framework `hf-loop`: a plain training loop around the models of Hugging Face's transformers.

This file imports no PyTorch. It gives no reasons for missing features: the implementations in transformers lack them
too, and give the reasons.
"""

from dataclasses import replace

from throughline.frameworks import torch

FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="hf_loop.rank:HfLoop",
    library="transformers",
    packages=("torch", "transformers", "accelerate"),
    calls=False,
    features=torch.FRAMEWORK.features
    - {"cuda_graph", "tensor_parallel", "remove_padding", "reduce_dtype", "selective", "expert_parallel"},
)
