"""All kinds of logs, by their names in imported.json."""

from collections.abc import Mapping

from throughline.imports.kinds import (
    deepspeed,
    gluonnlp,
    megatron,
    nanogpt,
    ngc_mxnet,
    ngc_pytorch,
    ngc_tensorflow,
    oneflow,
    paddle,
    torchtitan,
    trainer,
)
from throughline.imports.log import Kind

KINDS: Mapping[str, Kind] = {
    "NGC PyTorch": ngc_pytorch.read,
    "NGC TensorFlow": ngc_tensorflow.read,
    "NGC MXNet": ngc_mxnet.read,
    "PaddlePaddle": paddle.read,
    "GluonNLP": gluonnlp.read,
    "OneFlow": oneflow.read,
    "Megatron-LM": megatron.read,
    "DeepSpeed": deepspeed.read,
    "Hugging Face Trainer": trainer.read,
    "nanoGPT": nanogpt.read,
    "torchtitan": torchtitan.read,
}
