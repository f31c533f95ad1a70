"""`hf-loop`: a plain training loop around the models of Hugging Face's transformers. No PyTorch in here."""

from dataclasses import replace

from throughline.frameworks import torch

FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="hf_loop.rank:HfLoop",
    library="transformers",
    calls=False,
    features=torch.FRAMEWORK.features - {"graph", "tensor"},
    reasons={
        "graph": "the plain loop records no CUDA graph",
        "tensor": "the plain loop has a whole model on every device; options.sharding splits its weights",
    },
)
