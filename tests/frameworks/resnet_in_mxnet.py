"""Helper process, in MXNet's environment: the loss, the gradients and the settings of small ResNets.

Arguments: a folder, and how many networks it has: weights1.npz, pictures1.npz and so on. found1.npz gets the gradients
by name, and `loss`. The process prints the settings, one line a network.
"""

import json
import sys
from pathlib import Path

import mxnet as mx
import numpy as np

from throughline.workloads import resnet
from throughline.workloads.resnet import in_mxnet


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    for number in range(1, count + 1):
        arrays, given = dict(np.load(folder / f"pictures{number}.npz")), dict(np.load(folder / f"weights{number}.npz"))
        shape = resnet.Shape((1, 2), width=8, expansion=given["head.weight"].shape[1] // 16)
        network = in_mxnet.ResNet(shape, resnet.Parameters(image=33, classes=7, label_smoothing=0.2))
        network.initialize(ctx=mx.cpu())
        network.hybridize(static_alloc=True, static_shape=True)
        in_mxnet.FORM.load(network, given)
        batch = [mx.nd.array(array, dtype=array.dtype) for array in in_mxnet.FORM.batch(arrays)]
        with mx.autograd.record():
            loss = network(*batch)
        loss.backward()
        gradients = {name: one.grad().asnumpy() for name, one in network.named_parameters()}
        np.savez(folder / f"found{number}.npz", loss=loss.asnumpy(), **gradients)
        print(json.dumps(in_mxnet.FORM.settings(network)))


if __name__ == "__main__":
    main()
