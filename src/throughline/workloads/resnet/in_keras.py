"""ResNet in Keras. The blocks are ours, because keras-hub's ResNetBackbone cannot begin with fewer than 64 channels.

Pictures are always channels last, whatever the value of `channels_last`. Every backend of Keras can train it.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.in_keras_form import KerasForm, counted, of_layer
from throughline.workloads.resnet import DEVIATION, EPSILON, MEAN, MOMENTUM, SHAPES, Block, Parameters, Shape


class Convolution(keras.Layer):  # type: ignore[misc]
    """A convolution without bias, followed by a batch norm."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, policy: str) -> None:
        super().__init__(dtype=policy)
        self.around = [[0, 0], [size // 2] * 2, [size // 2] * 2, [0, 0]]
        spread = keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")  # He et al. 2015
        self.convolution = keras.layers.Conv2D(
            outputs, size, stride, use_bias=False, kernel_initializer=spread, data_format="channels_last", dtype=policy
        )
        self.norm = keras.layers.BatchNormalization(momentum=1 - MOMENTUM, epsilon=EPSILON, dtype=policy)
        self.convolution.build((None, None, None, inputs))
        self.norm.build((None, None, None, outputs))
        self.built = True

    def call(self, hidden: Any, training: bool) -> Any:
        padded = ops.pad(hidden, self.around) if self.around[1][0] else hidden
        return self.norm(self.convolution(padded), training=training)

    def by_name(self, prefix: str) -> dict[str, Any]:
        weights = {"weight": self.convolution.kernel, "scale": self.norm.gamma, "shift": self.norm.beta}
        return {f"{prefix}.{name}": weight for name, weight in weights.items()}


class Residual(keras.Layer):  # type: ignore[misc]
    """A residual block: the output of its convolutions is added to its input."""

    def __init__(self, block: Block, policy: str) -> None:
        super().__init__(dtype=policy)
        self.convolutions = [Convolution(*sizes, policy) for sizes in block.convolutions]
        self.shortcut = None
        if block.has_shortcut:
            self.shortcut = Convolution(block.inputs, block.outputs, 1, block.stride, policy)
        self.built = True

    def call(self, hidden: Any, training: bool) -> Any:
        residual = hidden if self.shortcut is None else self.shortcut(hidden, training=training)
        *first, last = self.convolutions
        for convolution in first:
            hidden = ops.relu(convolution(hidden, training=training))
        return ops.relu(last(hidden, training=training) + residual)

    def by_name(self, prefix: str) -> dict[str, Any]:
        weights = self.shortcut.by_name(f"{prefix}.shortcut") if self.shortcut else {}
        for number, convolution in enumerate(self.convolutions):
            weights |= convolution.by_name(f"{prefix}.convolutions.{number}")
        return weights


class ResNet(keras.Layer):  # type: ignore[misc]
    """ResNet with its loss. Calling it takes the arrays of `resnet.batch` and returns the mean over all pictures."""

    def __init__(self, shape: Shape, given: Parameters, policy: str) -> None:
        super().__init__(dtype=policy)
        self.smoothing = given.label_smoothing
        self.stem = Convolution(3, shape.width, 7, 2, policy)
        self.blocks = [Residual(block, policy) for block in shape.blocks]
        self.places = [f"{stage}.{number}" for stage, count in enumerate(shape.stages) for number in range(count)]
        outputs = shape.blocks[-1].outputs
        spread = keras.initializers.RandomUniform(-(outputs**-0.5), outputs**-0.5)  # as in PyTorch
        self.head = keras.layers.Dense(
            given.classes, kernel_initializer=spread, bias_initializer=spread.clone(), dtype=policy
        )
        self.head.build((None, outputs))
        self.built = True

    def call(self, batch: dict[str, Any]) -> Any:
        surprises = -ops.log_softmax(self.scores(batch["pixels"], training=True))
        right = ops.mean(ops.take_along_axis(surprises, ops.cast(batch["labels"], "int32")[:, None], axis=1))
        return (1 - self.smoothing) * right + self.smoothing * ops.mean(surprises)

    def scores(self, pixels: Any, training: bool) -> Any:
        """Return the scores of all classes [B, C], in fp32."""
        hidden = (ops.cast(pixels, "float32") - ops.array(MEAN, "float32")) / ops.array(DEVIATION, "float32")
        hidden = ops.relu(self.stem(ops.cast(hidden, self.compute_dtype), training=training))
        around = [[0, 0], [1, 1], [1, 1], [0, 0]]  # zeros cannot exceed any value after a relu
        hidden = ops.max_pool(ops.pad(hidden, around), 3, 2, data_format="channels_last")
        for block in self.blocks:
            hidden = block(hidden, training=training)
        return ops.cast(self.head(ops.mean(hidden, axis=(1, 2))), "float32")

    def by_name(self) -> dict[str, Any]:
        """Return every weight by its name in the PyTorch implementation."""
        weights = {**self.stem.by_name("stem"), **of_layer("head", self.head)}
        for prefix, block in zip(self.places, self.blocks, strict=True):
            weights |= block.by_name(f"stages.{prefix}")
        return weights


class ResNetInKeras(KerasForm[Parameters, ResNet]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: str = "float32") -> ResNet:
        return ResNet(SHAPES[spec.model], spec.parameters, at)

    def settings(self, network: ResNet) -> dict[str, Any]:
        norm = network.stem.norm
        constants = f"epsilon {norm.epsilon:g}, momentum {1 - norm.momentum:g}"
        return {
            "parameters": counted(network),
            "normalization": "of bytes, on the device",
            "batch_norm": f"{constants}, over the pictures of each replica",
            "label_smoothing": network.smoothing,
            "memory_format": "channels last",
            "convolutions": f"those of {keras.backend.backend()}",
            "dropout": [],
            "loss": "mean over all pictures, of each replica",
        }


FORM = ResNetInKeras()
