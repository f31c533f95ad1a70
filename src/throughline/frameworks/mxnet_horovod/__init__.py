"""The framework `mxnet-horovod`: MXNet with Horovod's exchange. This file describes it and imports no MXNet."""

from throughline.frameworks import horovod
from throughline.frameworks.description import TRAINS, Framework

FRAMEWORK = Framework(
    rank="mxnet_horovod.rank:MXNetHorovod",
    library="mxnet",
    packages=("mxnet", "gluonnlp", "horovod"),
    options=horovod.HorovodOptions,
    starter=horovod.STARTER,
    # MXNet does not name a GPU. The driver does, and it is the right name if all GPUs of the machine are of one kind.
    accelerators={
        "cuda": "import glob, json, mxnet; n = mxnet.context.num_gpus(); "
        "files = glob.glob('/proc/driver/nvidia/gpus/*/information'); "
        "lines = [line for file in files for line in open(file) if line.startswith('Model')]; "
        "named = {line.partition(':')[2].strip() for line in lines}; "
        "name = named.pop() if len(named) == 1 else 'GPU'; "
        "print(json.dumps({'count': n, 'name': name if n else None, 'fp16': None}))"
    },
    features=TRAINS,
    gpus_only=frozenset({"amp"}),
    reasons={
        "compile": "MXNet has no compiler to switch on: its graph is always hybridized",
        "cuda_graph": "MXNet 1.9 records no CUDA graph of a backward pass",
    },
)
