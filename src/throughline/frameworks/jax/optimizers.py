"""optax's optimizers by their names in config.yaml, and the three kinds of gradient clipping.

Each is the chain of transformations that optax uses for the optimizer of that name, without the last transformation.
That one multiplies by the learning rate, and in our step the rate is an argument.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from throughline.frameworks.rank import CLIP_AT
from throughline.spec import Optimizer as Settings

CLIPS = {
    "none": optax.identity,
    "value": lambda: optax.clip(CLIP_AT),
    "norm": lambda: optax.stateless(lambda gradients, _: [_clipped(gradient) for gradient in gradients]),
    "global_norm": lambda: optax.clip_by_global_norm(CLIP_AT),
}


class Update(NamedTuple):
    """An optimizer. A step subtracts from the weights the learning rate times the output of `transform`."""

    transform: optax.GradientTransformation
    decays_vectors: bool
    constants: dict[str, Any]
    """The constants that it was built with, by their names in `frameworks.rank.SETTINGS`."""


def build(settings: Settings, clip: str, decays: list[bool]) -> Update:
    """Return the optimizer. `decays` says for each weight whether weight decay applies to it."""
    decay = optax.add_decayed_weights(settings.weight_decay, mask=decays)
    if settings.name == "sgd":
        parts: tuple[optax.GradientTransformation, ...] = (decay, optax.trace(settings.momentum, nesterov=False))
        constants: dict[str, Any] = {"momentum": settings.momentum, "nesterov": False}
    else:
        beta1, beta2 = settings.betas
        corrected = settings.name != "bertadam"
        adam = (optax.scale_by_adam if corrected else uncorrected)(beta1, beta2, settings.epsilon, eps_root=0.0)
        parts = {
            "adamw": (adam, decay),
            "bertadam": (adam, decay),
            "adam": (decay, adam),
            "lamb": (adam, decay, optax.scale_by_trust_ratio()),
        }[settings.name]
        constants = {"betas": [beta1, beta2], "epsilon": settings.epsilon}
    return Update(optax.chain(CLIPS[clip](), *parts), all(decays), constants)


def uncorrected(beta1: float, beta2: float, epsilon: float, eps_root: float) -> optax.GradientTransformation:
    """Return Adam's direction without correction of the bias, in the form of `optax.scale_by_adam`."""

    def update(gradients: Any, state: Any, weights: Any = None) -> tuple[Any, Any]:
        means = jax.tree.map(lambda mean, new: beta1 * mean + (1 - beta1) * new, state.mu, gradients)
        squares = jax.tree.map(lambda square, new: beta2 * square + (1 - beta2) * new * new, state.nu, gradients)
        step = jax.tree.map(lambda mean, square: mean / (jnp.sqrt(square + eps_root) + epsilon), means, squares)
        return step, state._replace(count=optax.safe_increment(state.count), mu=means, nu=squares)

    return optax.GradientTransformation(optax.scale_by_adam(beta1, beta2).init, update)


def _clipped(gradient: jax.Array) -> jax.Array:
    norm = jnp.linalg.norm(gradient.reshape(-1))
    return gradient * jnp.minimum(1.0, CLIP_AT / (norm + 1e-6 * CLIP_AT))
