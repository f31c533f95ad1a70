"""`options.sharding`: what the replicas divide among themselves instead of each keeping a copy.

With `zero1`, DistributedDataParallel stays unchanged. Each rank updates some of the weights, and keeps only their
states of the optimizer. With the two other values (PyTorch's FSDP2), every rank keeps a part of each weight, with the
gradient and the states of this part. The weights of a block are gathered for its passes, and each part of a gradient is
summed on the rank that keeps it.

The modules for this are imported inside the functions that use them, because their import takes half as long as that of
PyTorch itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from throughline.frameworks.rank import refuse_if
from throughline.frameworks.torch.norms import Norms, Tensors, here
from throughline.spec import Options

WEIGHTS = ("shard_grad_op", "full_shard")
"""The values of `options.sharding` that split the weights as well."""
SETTINGS = {
    "none": "none",
    "zero1": "the optimizer's states (8 bytes a parameter), each tensor's to one replica (ZeroRedundancyOptimizer)",
    "shard_grad_op": "weights, gradients and the optimizer's states (16 bytes a parameter), a part of each tensor "
    "to every replica (FSDP2); whole weights are gathered once a step",
    "full_shard": "weights, gradients and the optimizer's states (16 bytes a parameter), a part of each tensor to "
    "every replica (FSDP2); whole weights are gathered block by block, for each pass anew",
}
"""Map each value to words for what is split, and how."""


def refuse(options: Options, replicas: int, groups: int = 1) -> None:
    """Raise Unsupported if sharding is not possible with these options. `groups`: see `options.hybrid_shard_groups`."""
    if options.sharding == "none":
        alone = "options.hybrid_shard_groups is for options.sharding: without it, every replica keeps a copy anyway"
        refuse_if(options.hybrid_shard_groups != 1, alone)
        return
    refuse_if(replicas == 1, "a single replica has no other replica to share its states with: sharding needs several")
    single = f"each of the {groups} groups of options.hybrid_shard_groups has one replica, with no other to share with"
    refuse_if(replicas == groups, single)
    exchange = "with options.sharding the replicas exchange weights in every step: options.gradient_sync has to be true"
    refuse_if(not options.gradient_sync, exchange)


def words(kind: str, half: torch.dtype | None, groups: int = 1) -> str:
    """Return the words of a record for this value of `options.sharding`, within each group of replicas."""
    gathered = f"; blocks are gathered in {half}, and gradients summed in torch.float32" if half else ""
    within = f"; in {groups} groups of replicas, each of which has the whole" if groups > 1 else ""
    return SETTINGS[kind] + within + (gathered.replace("torch.", "") if kind in WEIGHTS else "")


@dataclass(frozen=True)
class Shared:
    """Parameters that fewer ranks split than the others: their names, and these ranks."""

    names: frozenset[str]
    mesh: Any


def weights(
    network: Any,
    blocks: Sequence[nn.Module],
    kind: str,
    half: torch.dtype | None = None,
    mesh: Any = None,
    shared: Shared | None = None,
) -> None:
    """Leave this rank only its part of all weights, block by block. The weights outside the blocks are a block too.

    half: the type in which the weights of the blocks are gathered. What lies outside stays in fp32, the type of the
    loss. mesh: the ranks that split them; None: all ranks. With two dimensions, the first counts groups of ranks, each
    of which splits all weights.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    types = MixedPrecisionPolicy(half, torch.float32, cast_forward_inputs=False) if half else MixedPrecisionPolicy()
    places = _places(network, shared)
    for block in blocks:
        fully_shard(
            block, mesh=mesh, reshard_after_forward=kind == "full_shard", mp_policy=types, shard_placement_fn=places
        )
    # The backward pass begins with these weights, so there is no gain in freeing them before it.
    fully_shard(network, mesh=mesh, reshard_after_forward=False)


def _places(network: nn.Module, shared: Shared | None) -> Any:
    """Return the function that tells FSDP2 which ranks split a parameter; None: the same ranks split all of them."""
    if shared is None:
        return None
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
    from torch.distributed.tensor import Shard

    mesh = shared.mesh
    ranks = FSDPMeshInfo(mesh, 0) if mesh.ndim == 1 else HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)
    place, experts = ShardPlacementResult(Shard(0), ranks), {network.get_parameter(name) for name in shared.names}
    return lambda parameter: place if parameter in experts else None


def norms_of_parts(group: dist.ProcessGroup | None) -> Norms:
    """Return a function for the norms of whole tensors, of which every rank holds a part. It sends one message."""

    def norms(tensors: Tensors, parameters: Sequence[Tensor]) -> Tensor:
        squares = torch.stack(list(torch._foreach_norm(here(tensors)))).square()
        dist.all_reduce(squares, group=group)
        return squares.sqrt()

    return norms


def optimizer(groups: Any, kind: Any, **constants: Any) -> Any:
    """Return an optimizer that updates some of the weights and then sends these to the other ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    update = ZeroRedundancyOptimizer(groups, kind, parameters_as_bucket_view=True, **constants)
    # The inner optimizer skips an overflow on the device, so the loss scaler need not wait to see if there was one.
    update._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    update.register_step_pre_hook(_hand_scale_over)
    return update


def _hand_scale_over(shared: Any, *_: Any) -> None:
    for name in ("grad_scale", "found_inf"):
        setattr(shared.optim, name, getattr(shared, name, None))
