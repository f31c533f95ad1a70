"""`torch`: PyTorch's DistributedDataParallel. What the rest has to know of it; no PyTorch in here."""

from throughline.frameworks import FEATURES, Framework

FRAMEWORK = Framework(
    rank="torch.ddp:TorchDDP",
    library="torch",
    # A driver that fails is a warning to PyTorch, and no GPU.
    gpus="import json, torch, warnings; warnings.simplefilter('error'); "
    "n = torch.cuda.device_count() if torch.cuda.is_available() else 0; warnings.simplefilter('default'); "
    "print(json.dumps({'count': n, 'name': torch.cuda.get_device_name(0) if n else None, "
    "'fp16': n > 0 and torch.cuda.get_device_capability(0) >= (6, 0)}))",
    features=frozenset(FEATURES),
    calls=True,
)
