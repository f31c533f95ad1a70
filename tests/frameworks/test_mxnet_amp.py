"""Mixed precision in MXNet, as far as a CPU shows it: the types of all operations, and steps with the loss scaler. And
its optimizer `bertadam`."""

from __future__ import annotations

import json

import training_fixtures
from framework_lab import helped
from throughline.spec import Optimizer, values

TYPES = {
    "bert": (
        ("FullyConnected", "_contrib_interleaved_matmul_selfatt_qk"),
        ("LayerNorm", "softmax", "log_softmax", "_contrib_interleaved_matmul_selfatt_valatt"),
    ),
    "resnet": (("Convolution", "FullyConnected", "BatchNorm"), ("log_softmax", "mean")),
}
"""Model -> its operations in half precision, and those in single precision."""


def test_amp_gives_products_half_precision_and_the_loss_single() -> None:
    """The product of attention with the values takes fp32, as MXNet's lists have it: the softmax before it gives it."""
    for (half, whole), types in zip(
        TYPES.values(), helped("mxnet-horovod", "mxnet_amp.py", "types", *TYPES), strict=True
    ):
        assert {name: types[name] for name in half} == {name: ["float16"] for name in half}
        assert {name: types[name] for name in whole} == {name: ["float32"] for name in whole}
        assert types["weights"] == types["loss"] == ["float32"], "the optimizer updates whole weights"


def test_the_loss_scale_changes_no_update_and_an_overflow_makes_none() -> None:
    """With clipping and accumulation, whose gradients carry the scale."""
    specs = [
        training_fixtures.spec(
            framework="mxnet-horovod", model="resnet-tiny", image=33, classes=10,
            optimizer={"name": optimizer, "learning_rate": 0.1},
            options={"data": "synthetic", "gradient_accumulation": 2, "clip": "global_norm"},
        )
        for optimizer in ("sgd", "lamb")
    ]  # fmt: skip
    told = helped("mxnet-horovod", "mxnet_amp.py", "steps", *(json.dumps(spec.values()) for spec in specs))
    for spec, found in zip(specs, told, strict=True):
        assert found["moved"] > 1e-4 and found["differ"] < 1e-4 * found["moved"], spec.optimizer
        assert found["still"] and found["scale"] == 2**15, spec.optimizer
        assert found["finite"] and found["skipped"] == 1, "gradients are zero again after an overflow"


def test_bertadam_is_gluonnlps_to_the_last_bit() -> None:
    """Both call one kernel with the same arguments. GluonNLP can also hand several weights at once to another kernel,
    which rounds in another way. That is switched off."""
    settings = Optimizer(name="bertadam", learning_rate=0.01, weight_decay=0.1)
    alone = {"MXNET_OPTIMIZER_AGGREGATION_SIZE": "1"}
    (told,) = helped("mxnet-horovod", "mxnet_amp.py", "bertadam", json.dumps(values(settings)), **alone)
    assert told["weights"][0] == told["weights"][1]
