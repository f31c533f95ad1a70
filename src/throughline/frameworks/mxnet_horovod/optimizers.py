"""MXNet's optimizers by their names in config.yaml, and the three kinds of gradient clipping.

In Adam, MXNet adds epsilon to the root of the second moment before its bias is corrected, and all other frameworks
afterwards. So we scale the epsilon that MXNet's kernels get. LAMB is MXNet's own, which corrects the bias first.
Nothing here waits for the device.
"""

import math
from collections.abc import Callable
from typing import Any

import mxnet as mx

from throughline.spec import Optimizer as Settings


class Adam(mx.optimizer.Adam):  # type: ignore[misc]
    """Adam with epsilon as in algorithm 1 of Kingma and Ba 2015: added to the root of the corrected second moment."""

    def __init__(self, epsilon: float, **settings: Any) -> None:
        super().__init__(epsilon=epsilon, **settings)
        self.stated_epsilon = epsilon

    def next_update(self, index: int) -> int:
        """Return the number of this weight's next update."""
        return int(self._index_update_count.get(index, self.begin_num_update)) + 1

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self.epsilon = self.stated_epsilon * math.sqrt(1 - self.beta2 ** self.next_update(index))
        super().update(index, weight, grad, state)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), computed by MXNet's kernel adamw_update."""

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        step = self.next_update(index)
        self._update_count(index)
        rate, decay = self._get_lr(index), self._get_wd(index)
        root = math.sqrt(1 - self.beta2**step)
        mean, square = state
        mx.nd.contrib.adamw_update(
            weight, grad, mean, square, rescale_grad=self.rescale_grad, lr=rate * root / (1 - self.beta1**step),
            eta=1.0, beta1=self.beta1, beta2=self.beta2, epsilon=self.stated_epsilon * root, wd=rate * decay,
            out=weight,
        )  # fmt: skip


class BertAdam(Adam):
    """GluonNLP's BERTAdam: AdamW without correction of the bias. GluonNLP calls the same kernel in the same way."""

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self._update_count(index)
        mean, square = state
        mx.nd.contrib.adamw_update(
            weight, grad, mean, square, rescale_grad=self.rescale_grad, lr=1.0, eta=self._get_lr(index),
            beta1=self.beta1, beta2=self.beta2, epsilon=self.stated_epsilon, wd=self._get_wd(index), out=weight,
        )  # fmt: skip


KINDS: dict[str, Callable[..., mx.optimizer.Optimizer]] = {
    "adamw": AdamW,
    "adam": Adam,
    "bertadam": BertAdam,
    "lamb": mx.optimizer.LAMB,
    "sgd": mx.optimizer.SGD,
}


def build(settings: Settings, parameters: list[Any]) -> mx.optimizer.Optimizer:
    """Return the optimizer. Weight decay applies to matrices only, not to biases and norms."""
    for parameter in parameters:
        parameter.wd_mult = 1.0 if len(parameter.shape) >= 2 else 0.0
    if settings.name == "sgd":
        constants = {"momentum": settings.momentum}
    else:
        beta1, beta2 = settings.betas
        constants = {"beta1": beta1, "beta2": beta2, "epsilon": settings.epsilon}
    kind = KINDS[settings.name]
    return kind(learning_rate=settings.learning_rate, wd=settings.weight_decay, **constants)


def clip(kind: str, gradients: list[mx.nd.NDArray], threshold: float) -> None:
    """Clip the gradients in place. Like the gradients, the threshold may carry a loss scale, or be for sums over
    ranks."""
    if kind == "value":
        for gradient in gradients:
            mx.nd.clip(gradient, -threshold, threshold, out=gradient)
        return
    if kind == "norm":
        norms = [mx.nd.norm(gradient) for gradient in gradients]
    else:
        squares = mx.nd.multi_sum_sq(*gradients, num_arrays=len(gradients))
        norms = [mx.nd.sqrt(mx.nd.sum(squares))] * len(gradients)
    for gradient, norm in zip(gradients, norms, strict=True):
        scale = mx.nd.minimum(threshold / (norm + 1e-6 * threshold), 1.0)
        mx.nd.broadcast_mul(gradient, scale.reshape((1,) * gradient.ndim), out=gradient)
