"""`torch-horovod`: PyTorch with Horovod's exchange. What the rest has to know of it; no PyTorch in here."""

from __future__ import annotations

from throughline.frameworks import FEATURES, Framework, starters
from throughline.frameworks.torch import GPUS

FRAMEWORK = Framework(
    rank="torch_horovod.rank:TorchHorovod",
    library="torch",
    starter=starters.HOROVOD,
    gpus=GPUS,
    features=frozenset(FEATURES) - {"sharding", "tensor"},
)
