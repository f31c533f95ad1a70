"""`toy`: a synthetic framework that trains with PyTorch, has an option of its own, and calls the processor an
abacus."""

from __future__ import annotations

from dataclasses import dataclass, replace

from throughline.frameworks import torch
from throughline.spec import Part, key


@dataclass(frozen=True)
class ToyOptions(Part):
    """The options that only `toy` has."""

    pause_ms: int = key("milliseconds that the toy framework rests before each step", default=0, least=0, most=1000)


FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="toy.rank:Toy",
    packages=("h5py", "toy-package"),
    accelerators={"abacus": """print('{"count": 2, "name": "wooden abacus", "fp16": false}')"""},
    options=ToyOptions,
    calls=False,
    features=frozenset({"gradient_accumulation", "clipping"}),
    reasons={"devices": "an abacus computes alone"},
)
