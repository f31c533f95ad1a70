"""The memory that a rank is predicted to need, by parts. Each part is in bytes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """weights, gradients, states (of the optimizer): what this rank keeps of them. gathered: whole weights that it has
    of other ranks at a time, and their gradients. activations: what the forward pass keeps for the backward pass. head,
    layer: what the head with its loss, or the largest layer, needs only while it is computed.

    With several micro-batches the gradients are there while a forward pass is made; otherwise they come into being as
    the activations go.
    """

    weights: float
    gradients: float
    states: float
    gathered: float
    activations: float
    head: float
    layer: float
    accumulates: bool = False

    @property
    def peak_bytes(self) -> float:
        """The most that is needed at a time: when the forward pass ends, or when the backward pass ends."""
        forward = self.activations + self.head + (self.gradients if self.accumulates else 0.0)
        backward = self.gradients + self.layer
        return self.weights + self.states + self.gathered + max(forward, backward)
