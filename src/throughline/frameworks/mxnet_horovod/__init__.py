"""The framework `mxnet-horovod`: MXNet with Horovod's exchange. This file describes it and imports no MXNet."""

from throughline.frameworks import horovod
from throughline.frameworks.description import Framework

FRAMEWORK = Framework(
    rank="mxnet_horovod.rank:MXNetHorovod",
    library="mxnet",
    packages=("mxnet", "gluonnlp", "horovod"),
    options=horovod.HorovodOptions,
    starter=horovod.STARTER,
    accelerators={
        "cuda": "import json, mxnet; n = mxnet.context.num_gpus(); "
        "print(json.dumps({'count': n, 'name': 'GPU' if n else None, 'fp16': None}))"
    },
    features=frozenset({"devices", "nodes", "amp", "accumulation", "clipping", "convergence"}),
    gpus_only=frozenset({"amp"}),
    reasons={
        "compile": "MXNet has no compiler to switch on: its graph is always hybridized",
        "graph": "MXNet 1.9 records no CUDA graph of a backward pass",
    },
)
