"""`options.sharding`: what the replicas share out among themselves, where each of them would keep a copy.

`optimizer` leaves DistributedDataParallel as it is: each rank updates some of the weights, and keeps the optimizer's
states of these alone. With the other two (PyTorch's FSDP2) every rank keeps a part of each weight, with its gradient
and states. The weights of a block are gathered for its passes; gradients are added up where they are kept.

What does this is imported where it is used: that takes half as long as PyTorch itself.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from throughline.frameworks import Unsupported

WEIGHTS = ("optimizer_gradients", "full")
"""With these the weights lie in parts as well."""
SETTINGS = {
    "none": "none",
    "optimizer": "the optimizer's states (8 bytes a parameter), each tensor's to one replica (ZeroRedundancyOptimizer)",
    "optimizer_gradients": "weights, gradients and the optimizer's states (16 bytes a parameter), a part of each "
    "tensor to every replica (FSDP2); whole weights are gathered once a step",
    "full": "weights, gradients and the optimizer's states (16 bytes a parameter), a part of each tensor to every "
    "replica (FSDP2); whole weights are gathered block by block, for each pass anew",
}
"""What is split, in words that follow the verb."""


def refuse(options: dict[str, Any], replicas: int) -> None:
    """Unsupported where nothing can be shared out."""
    reasons = {
        "a single replica has nobody to share its states with: sharding needs several": replicas == 1,
        "replicas that share their states out exchange weights in every step: none can train alone":
            not options["exchange"],
        "weights that options.tensor has cut are not cut again: options.sharding can be `optimizer` with it":
            options["tensor"] > 1 and options["sharding"] in WEIGHTS,
    }  # fmt: skip
    if options["sharding"] != "none" and any(reasons.values()):
        raise Unsupported(next(why for why, holds in reasons.items() if holds))


def weights(network: Any, blocks: Sequence[nn.Module], kind: str) -> None:
    """Leave this rank its part of all weights, block by block; what is in no block is one as well."""
    from torch.distributed.fsdp import fully_shard

    for block in blocks:
        fully_shard(block, reshard_after_forward=kind == "full")
    # The backward pass begins with these: to part with them before it would gain nothing.
    fully_shard(network, reshard_after_forward=False)


def optimizer(groups: Any, kind: Any, **constants: Any) -> Any:
    """An optimizer of some of the weights, which then sends them to the other ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    made = ZeroRedundancyOptimizer(groups, kind, parameters_as_bucket_view=True, **constants)
    # What updates skips an overflow on the device, so that nobody has to look whether there was one.
    made._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    made.register_step_pre_hook(_hand_scale_over)
    return made


def _hand_scale_over(shared: Any, *_: Any) -> None:
    for name in ("grad_scale", "found_inf"):
        setattr(shared.optim, name, getattr(shared, name, None))
