"""The framework `torch-horovod`: PyTorch with Horovod's exchange. This file describes it and imports no PyTorch."""

from dataclasses import replace

from throughline.frameworks import horovod, torch

LACKS = {
    "cuda_graph": "Horovod sends gradients from a thread and a stream of its own, which no CUDA graph records",
    "tensor_parallel": "Horovod averages over all ranks, and those that share a replica hold different parts of it",
    "sharding": "Horovod gives every rank all gradients; states that are split need another exchange",
    "reduce_dtype": "Horovod compresses gradients to fp16, and not to bf16",
    "own_gradient_sync": "such a model exchanges with torch.distributed, which Horovod's ranks do not join",
}

FRAMEWORK = replace(
    torch.FRAMEWORK,
    rank="torch_horovod.rank:TorchHorovod",
    packages=("torch", "horovod"),
    options=horovod.HorovodOptions,
    starter=horovod.STARTER,
    calls=False,
    on_gpus=horovod.on_gpus,
    features=torch.FRAMEWORK.features - LACKS.keys() - {"expert_parallel", "hybrid_shard_groups"},
    reasons=LACKS,
)
