"""`hf-loop`: a plain training loop around the models of Hugging Face's transformers. No PyTorch in here.

What it lacks, the forms in transformers lack as well, and say why.
"""

from dataclasses import replace

from throughline.frameworks import torch

FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="hf_loop.rank:HfLoop",
    library="transformers",
    calls=False,
    features=torch.FRAMEWORK.features - {"graph", "tensor", "unpadded"},
)
