"""The FLOPs of a decoder by parts. Each convention of counting FLOPs adds up some of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoder:
    """FLOPs of the forward pass on one sample: matrix products only, a multiply-add is 2.

    layers: the products with weights, except the vocabulary's. attention: the attention of all pairs of positions.
    seen: the attention of those pairs that the causal mask and a sliding window let through. head: the product with
    the vocabulary's table. parameters: the number of parameters of the whole model; a shared table counts once, and of
    a mixture only the experts that a token uses.
    """

    layers: float
    attention: float
    seen: float
    head: float
    parameters: float
