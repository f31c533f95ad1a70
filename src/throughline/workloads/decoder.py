"""What a decoder computes: the parts from which every convention of its FLOPs is made."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoder:
    """FLOPs of the forward pass on one sample, matrix products alone, a multiply-add is 2.

    layers: all products with weights but the vocabulary's. attention: all pairs of positions; seen: those pairs that
    the causal mask, and a sliding window, let through. head: the product with the vocabulary's table. parameters: of
    the whole model, every table counted once.
    """

    layers: float
    attention: float
    seen: float
    head: float
    parameters: float
