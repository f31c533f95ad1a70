"""The optimizers by their names in config.yaml, and the three kinds of gradient clipping, in a TensorFlow graph.

Adam and SGD use TensorFlow's own kernels, which Keras' optimizers do not use. The Adam kernel adds epsilon before it
corrects the bias of the moments. So we scale the rate and epsilon that we pass to it such that the result is the same
as in the other frameworks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from throughline.frameworks.rank import CLIP_AT
from throughline.spec import Optimizer as Settings

Tensors = Sequence[Any]


class Optimizer:
    """An optimizer, whose `apply` is called inside a graph. `decays`: whether weight decay applies to each weight."""

    def __init__(self, settings: Settings, weights: Tensors, decays: Sequence[bool]) -> None:
        self.name, self.weights = settings.name, weights
        self.rate = tf.Variable(settings.learning_rate, trainable=False, dtype=tf.float32)
        self.decay = settings.weight_decay
        self.decays = [self.decay if decays_weight else 0.0 for decays_weight in decays]
        self.momentum, self.betas, self.epsilon = settings.momentum, settings.betas, settings.epsilon
        self.count = tf.Variable(0, trainable=False, dtype=tf.int64)
        moments = 1 if self.name == "sgd" else 2
        self.moments = [
            [tf.Variable(tf.zeros_like(weight), trainable=False) for _ in range(moments)] for weight in weights
        ]

    def state(self) -> dict[str, tf.Variable]:
        """Return what a checkpoint has to hold in addition to the weights."""
        moments = {f"moment {i} {j}": moment for i, pair in enumerate(self.moments) for j, moment in enumerate(pair)}
        return {**moments, "count": self.count}

    def apply(self, gradients: Tensors) -> None:
        """Update every weight."""
        {"lamb": self._lamb, "sgd": self._sgd}.get(self.name, self._adam)(gradients)

    def _with_penalty(self, gradients: Tensors) -> list[Any]:
        """Return the gradients plus the weight decay as an L2 penalty."""
        parts = zip(gradients, self.weights, self.decays, strict=True)
        return [gradient + decay * weight if decay else gradient for gradient, weight, decay in parts]

    def _corrections(self) -> tuple[Any, Any]:
        """Return 1 - beta ** step for both moments, with the betas rounded to single precision."""
        step = tf.cast(self.count.assign_add(1), tf.float64)
        first, second = (1 - tf.pow(tf.constant(np.float64(np.float32(beta)), tf.float64), step) for beta in self.betas)
        return first, second

    def _sgd(self, gradients: Tensors) -> None:
        for weight, gradient, (moment,) in zip(self.weights, self._with_penalty(gradients), self.moments, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=moment.handle, lr=self.rate, grad=gradient, momentum=self.momentum
            )

    def _adam(self, gradients: Tensors) -> None:
        rate, epsilon = self.rate, self.epsilon
        if self.name != "bertadam":  # which corrects no bias
            first, second = self._corrections()
            root = tf.sqrt(second)
            rate = tf.cast(tf.cast(self.rate, tf.float64) * root / first, tf.float32)
            epsilon = tf.cast(self.epsilon * root, tf.float32)
        if self.name == "adam":
            gradients = self._with_penalty(gradients)
        beta1, beta2 = self.betas
        parts = zip(self.weights, gradients, self.moments, self.decays, strict=True)
        for weight, gradient, (mean, square), decay in parts:
            if self.name in ("adamw", "bertadam") and decay:
                weight.assign(weight * (1 - self.rate * decay))
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle, m=mean.handle, v=square.handle, beta1_power=0.0, beta2_power=0.0, lr=rate,
                beta1=beta1, beta2=beta2, epsilon=epsilon, grad=gradient,
            )  # fmt: skip

    def _lamb(self, gradients: Tensors) -> None:
        """LAMB: You et al. 2020, algorithm 2, with bias-corrected moments. The trust ratio is 1 if a norm is 0."""
        first, second = (tf.cast(correction, tf.float32) for correction in self._corrections())
        beta1, beta2 = self.betas
        parts = zip(self.weights, gradients, self.moments, self.decays, strict=True)
        for weight, gradient, (mean, square), decay in parts:
            top = mean.assign(beta1 * mean + (1 - beta1) * gradient) / first
            bottom = tf.sqrt(square.assign(beta2 * square + (1 - beta2) * gradient * gradient) / second)
            update = top / (bottom + self.epsilon) + decay * weight
            size, length = tf.norm(weight), tf.norm(update)
            ratio = tf.where((size > 0) & (length > 0), tf.math.divide_no_nan(size, length), 1.0)
            weight.assign_sub(self.rate * ratio * update)


def clip(kind: str, gradients: Tensors) -> list[Any]:
    """Return the clipped gradients."""
    if kind == "value":
        return [tf.clip_by_value(gradient, -CLIP_AT, CLIP_AT) for gradient in gradients]
    if kind == "norm":
        return [tf.clip_by_norm(gradient, CLIP_AT) for gradient in gradients]
    if kind == "global_norm":
        clipped, _ = tf.clip_by_global_norm(gradients, CLIP_AT)
        return list(clipped)
    return list(gradients)
