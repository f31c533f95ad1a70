"""Paddle's optimizers by their names in config.yaml, with Paddle's three kinds of gradient clipping.

An optimizer of Paddle clips the gradients itself, before the weight decay. All of them add epsilon to the root of the
corrected second moment. LAMB applies its trust ratio to every parameter, including those without weight decay.
"""

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle.regularizer import L2Decay

from throughline.frameworks.rank import CLIP_AT, optimizer_settings
from throughline.spec import Optimizer as Settings

CLIPS: dict[str, Callable[[float], Any]] = {
    "value": paddle.nn.ClipGradByValue,
    "norm": paddle.nn.ClipGradByNorm,
    "global_norm": paddle.nn.ClipGradByGlobalNorm,
}


def build(settings: Settings, parameters: Sequence[Any], clip: str) -> Any:
    """Return the optimizer. Weight decay applies to matrices only, not to biases and norms."""
    name, decay = settings.name, settings.weight_decay
    clips = CLIPS[clip](CLIP_AT) if clip in CLIPS else None
    common = {"learning_rate": settings.learning_rate, "parameters": parameters, "grad_clip": clips}
    if name in ("adam", "sgd"):  # the decay is a part of the gradient, and Paddle reads it from each parameter
        for parameter in parameters:
            parameter.regularizer = L2Decay(decay if parameter.ndim >= 2 else 0.0)
    if name == "sgd":
        return paddle.optimizer.Momentum(momentum=settings.momentum, **common)
    beta1, beta2 = settings.betas
    moments = {"beta1": beta1, "beta2": beta2, "epsilon": settings.epsilon, **common}
    if name == "adam":
        return paddle.optimizer.Adam(**moments)
    if name == "lamb":
        return paddle.optimizer.Lamb(
            lamb_weight_decay=decay, exclude_from_weight_decay_fn=is_vector, always_adapt=True, **moments
        )
    kind = BertAdam if name == "bertadam" else paddle.optimizer.AdamW
    matrices = {parameter.name for parameter in parameters if not is_vector(parameter)}
    return kind(weight_decay=decay, apply_decay_param_fun=matrices.__contains__, **moments)


class BertAdam(paddle.optimizer.AdamW):  # type: ignore[misc]
    """AdamW without correction of the bias. Paddle divides by 1 - beta ** step and keeps the powers, here zeros."""

    def _add_moments_pows(self, parameter: Any) -> None:
        super()._add_moments_pows(parameter)
        for name in (self._beta1_pow_acc_str, self._beta2_pow_acc_str):
            power = self._get_accumulator(name, parameter)
            power.set_value(paddle.zeros_like(power))


def begin(update: Any, parameters: Sequence[Any]) -> None:
    """Create the optimizer's states now. Otherwise its first step creates them."""
    update._create_accumulators(paddle.base.framework.default_main_program().global_block(), parameters)


def is_vector(parameter: Any) -> bool:
    return bool(parameter.ndim < 2)


def settings(update: Any, parameters: Sequence[Any]) -> dict[str, Any]:
    """Return the settings of the optimizer, as it was built."""
    decays = [_decay(update, parameter) for parameter in parameters]
    vectors = [decay for decay, parameter in zip(decays, parameters, strict=True) if is_vector(parameter)]
    if isinstance(update, paddle.optimizer.Momentum):
        constants: dict[str, Any] = {"momentum": update._momentum, "nesterov": update._use_nesterov}
    else:
        constants = {"betas": [update._beta1, update._beta2], "epsilon": update._epsilon}
    return optimizer_settings(update.get_lr(), max(decays), any(vectors), **constants)


def _decay(update: Any, parameter: Any) -> float:
    """Return the weight decay of one parameter."""
    if isinstance(update, paddle.optimizer.Lamb):
        return 0.0 if update._exclude_from_weight_decay_fn(parameter) else float(update._lamb_weight_decay)
    if isinstance(update, paddle.optimizer.AdamW):
        return float(update._weight_decay) if update._apply_decay_param_fun(parameter.name) else 0.0
    return float(parameter.regularizer._coeff)
