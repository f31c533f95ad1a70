"""Helper process, in Paddle's environment: what its kernels and copies get on a GPU, seen on a machine without one.

It prints as JSON: which kernel Paddle's own choice takes on an H100 for each type and mask, with the type and the shape
of the mask that it gets; how batches are copied; and the loss and the gradients of a small ResNet in both formats.
"""

from __future__ import annotations

import gc
import json
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
from paddle.incubate.nn import memory_efficient_attention as memory_efficient
from paddle.nn.attention import sdpa as backends
from paddle.nn.functional import sdpa

from throughline import frameworks
from throughline.frameworks.rank import load
from throughline.spec import RunSpec
from throughline.workloads import resnet
from throughline.workloads.bert import in_paddle
from throughline.workloads.resnet import in_paddle as resnet_in_paddle


class Kernels:
    """Stand in for Paddle's operations on a GPU: they note what they get."""

    def __init__(self) -> None:
        self.called: list[Any] = []

    def note(self, kernel: str, query: Any, mask: Any, p: float) -> None:
        seen = None if mask is None else [str(mask.dtype).rpartition(".")[2], list(mask.shape)]
        self.called.append([kernel, str(query.dtype).rpartition(".")[2], seen, p])

    def flash_attn(self, query: Any, key: Any, value: Any, seed: Any, mask: Any, p: float, *more: Any) -> Any:
        self.note("flash", query, mask, p)
        return query, None, None, None

    def memory_efficient_attention(self, query: Any, key: Any, value: Any, mask: Any, *more: Any) -> Any:
        self.note("memory-efficient", query, mask, more[-3])
        return query, None, None

    def mathematics(self, query: Any, key: Any, value: Any, mask: Any, p: float, *more: Any) -> Any:
        self.note("mathematics", query, mask, p)
        return query, None


def attention() -> list[Any]:
    """Return what each type, with and without a mask, takes."""
    kernels, every = Kernels(), True
    backends._set_enabled_backends(list(backends._backend_enabled))
    sdpa.check_all_tensors_on_device = lambda given: every
    sdpa.check_cuda_is_available = lambda: every
    paddle.device.get_all_device_type = lambda: ["gpu"]
    sdpa.get_device_capability = lambda device: (9, 0)
    paddle.device.is_bf16_supported = lambda **given: every
    sdpa._C_ops = kernels
    memory_efficient._C_ops = kernels
    sdpa._math_attention = kernels.mathematics
    unseen = paddle.zeros([2, 1, 1, 16])
    for dtype in ("float32", "bfloat16", "float16"):
        three = [paddle.zeros([2, 16, 4, 32], dtype)] * 3
        for mask in (None, unseen):
            in_paddle._attention(three, mask, True, dropout_p=0.1, training=True)
    return kernels.called


def copies(spec: RunSpec) -> dict[str, Any]:
    """Return how a batch is copied, and whether its memory is still kept after its step and after the next one."""
    asked: list[Any] = []
    paddle.Tensor.cuda = lambda self, device, blocking: asked.append([device, blocking]) or self.clone()
    rank: Any = load("paddle")(spec, 0, 1, 1, "cpu")
    rank.join()
    rank.device()
    rank.model({"vocabulary": 1000})
    rank.optimizer()
    rank.kind = "cuda"
    rank.mark = lambda: SimpleNamespace(synchronize=lambda: None)
    rank.parallel = lambda ids: rank.parameters[0].sum() * ids.mean()

    def step() -> Any:
        host = paddle.ones([3])
        rank.step([rank.deliver({"ids": host})])
        return weakref.ref(host)

    first = step()
    gc.collect()
    after_its_own = first() is not None
    step()
    gc.collect()
    return {"asked": asked[0], "kept": [after_its_own, first() is not None]}


def trained(channels_last: bool) -> tuple[float, dict[str, Any], str]:
    """Return the loss, the gradients and the stated format of a small ResNet."""
    paddle.seed(3)
    given = resnet.Parameters(image=33, classes=7)
    network = resnet_in_paddle.Network(resnet.Shape((1, 1, 2, 1), width=8, expansion=4), given, channels_last)
    draw = np.random.default_rng(0)
    pictures = paddle.to_tensor(draw.integers(0, 256, (6, 33, 33, 3)).astype("uint8"))
    loss = network(pictures, paddle.to_tensor(draw.integers(0, 7, 6)))
    loss.backward()
    gradients = {name: one.grad.numpy() for name, one in network.named_parameters() if one.grad is not None}
    return float(loss), gradients, resnet_in_paddle.FORM.settings(network)["memory_format"]


def main() -> None:
    first, last = trained(False), trained(True)
    apart = {name: float(np.abs(last[1][name] - one).max() / np.abs(one).max()) for name, one in first[1].items()}
    found = {
        "resnet": {"losses": [first[0], last[0]], "apart": max(apart.values()), "formats": [first[2], last[2]]},
        "built": [
            resnet_in_paddle.FORM.build(frameworks.specification(json.loads(sys.argv[2])), {}, at).channels_last
            for at in ("cpu", "gpu:0")
        ],
        "copies": copies(frameworks.specification(json.loads(sys.argv[1]))),
        "attention": attention(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
