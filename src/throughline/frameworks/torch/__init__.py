"""The framework `torch`: PyTorch's DistributedDataParallel. This file describes it and imports no PyTorch."""

from throughline.frameworks.description import FEATURES, Framework

FRAMEWORK = Framework(
    rank="torch.ddp:TorchDDP",
    library="torch",
    packages=("torch",),
    # If the driver fails, PyTorch only warns and sees no GPU. Here the warning is an error.
    accelerators={
        "cuda": "import json, torch, warnings; warnings.simplefilter('error'); "
        "n = torch.cuda.device_count() if torch.cuda.is_available() else 0; warnings.simplefilter('default'); "
        "print(json.dumps({'count': n, 'name': torch.cuda.get_device_name(0) if n else None, "
        "'fp16': n > 0 and torch.cuda.get_device_capability(0) >= (6, 0)}))"
    },
    features=frozenset(FEATURES),
    gpus_only=frozenset({"fp8", "rowwise", "cuda_graph"}),
    calls=True,
    checkpoints=True,
    needs_compiler=True,
)
