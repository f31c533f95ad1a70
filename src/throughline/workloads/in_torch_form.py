"""What the implementations of all workloads in PyTorch share (`TorchForm`), and their networks (`Network`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from throughline.workloads import Arrays, Form
from throughline.workloads.form import same_names
from throughline.workloads.in_torch_compiler import compiled
from throughline.workloads.in_torch_tensor_parallel import TensorGroup
from throughline.workloads.workload import P


class Network(nn.Module):
    """A network of ordinary modules. `forward` takes the tensors of a batch and returns the mean loss.

    With `half_type`, autocast casts weights where products take them, and states between layers have this type.
    """

    half_type: torch.dtype | None = None
    several_lengths = False
    """True if a tensor of a batch has another length in every batch (see `of_any_length`)."""
    dynamic = False
    activation_checkpointing = False
    """True if the backward pass computes the activations within a layer again (`call`)."""
    ranks: TensorGroup | None = None
    """The ranks that share this replica, if each holds a part of it (`Form.split`)."""

    @property
    def cut_by(self) -> TensorGroup | None:
        """The ranks that each hold parts of some parameters; None if this rank holds whole ones."""
        return self.ranks

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which layers compute."""
        return torch.autocast(next(self.parameters()).device.type, self.half_type) if self.half_type else nullcontext()

    def call(self, layer: nn.Module, *given: Any) -> Tensor:
        """Call a layer; with `activation_checkpointing`, keep only what goes into it."""
        recompute = self.activation_checkpointing and self.training
        result: Tensor = checkpoint(layer, *given, use_reentrant=False) if recompute else layer(*given)
        return result

    def parts(self) -> list[tuple[nn.Module, str]]:
        """Return the methods that `compile_parts` compiles: their modules and their names."""
        return []

    def compile_parts(self, dynamic: bool, backend: Any = "inductor") -> None:
        """Compile each part by itself. The layers have the same code, so the first layer is compiled for all layers.

        `dynamic`: the tensors that `of_any_length` gets have another length in every batch. PyTorch does not cut the
        parts for DistributedDataParallel, so several ranks run the same program as one rank.
        """
        import torch._dynamo  # only here, because it takes a second

        torch._dynamo.config.optimize_ddp = False
        self.dynamic = dynamic
        for module, name in self.parts():
            setattr(module, name, compiled(getattr(module, name), None if dynamic else False, backend))

    def of_any_length(self, *tensors: Tensor) -> None:
        """Say, before a compiled part takes these tensors, that their first dimension changes from batch to batch.

        So the first batch makes the code for all lengths. Otherwise the second length would compile every part again.
        """
        if self.dynamic:
            for tensor in tensors:
                torch._dynamo.mark_dynamic(tensor, 0)


N = TypeVar("N", bound=nn.Module)
"""The class of the network."""


class TorchForm(Form[P, N]):
    """A workload in PyTorch. The implementations in all other libraries use its names of parameters."""

    def weights(self, network: N) -> Arrays:
        """If each rank holds a part of some parameters, all of them have to call this together."""
        if ranks := getattr(network, "cut_by", None):
            whole: Arrays = ranks.whole_arrays(network)
            return whole
        return {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}

    def snapshot(self, network: N) -> Arrays:
        return {name: _whole(parameter).numpy() for name, parameter in network.named_parameters()}

    def load(self, network: N, weights: Arrays) -> None:
        parameters = dict(network.named_parameters())
        same_names(parameters, weights)
        if ranks := getattr(network, "cut_by", None):
            weights = ranks.local_arrays(weights)
        for name, parameter in parameters.items():
            put(parameter, torch.from_numpy(weights[name]))

    def parameters(self, network: N) -> int:
        """Return how many parameters the whole network has."""
        ranks, held = getattr(network, "ranks", None), sum(parameter.numel() for parameter in network.parameters())
        if not ranks:
            return held
        return held + int(ranks.size - 1) * sum(network.get_parameter(name).numel() for name in ranks.dimensions)

    @torch.no_grad()
    def sums(self, network: N, batch: dict[str, Tensor]) -> dict[str, float]:
        """Sum what the network predicts for a batch: without dropout, in the weights' type, by any kernel, in fp64."""
        computing: Any = network
        half, training = computing.half_type, network.training
        computing.half_type = None
        network.eval()
        kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        with torch.compiler.set_stance("force_eager"), sdpa_kernel(kernels):
            values = self.predicted(network, batch)
        network.train(training)
        computing.half_type = half
        total = {name: float(value.sum(dtype=torch.float64)) for name, value in values.items()}
        return {**total, "samples": float(len(next(iter(batch.values()))))}


@torch.no_grad()
def put(parameter: Tensor, whole: Tensor) -> None:
    """Set a parameter to a whole tensor. If ranks have split it (FSDP2), this rank takes its part; nothing is sent."""
    part: Any = parameter
    if not hasattr(part, "device_mesh"):
        parameter.copy_(whole)
        return
    from torch.distributed.tensor import distribute_tensor  # only here, because it takes a second

    mesh, places = part.device_mesh, part.placements
    split: Any = distribute_tensor(whole.to(part.device), mesh, places, src_data_rank=None)
    part.to_local().copy_(split.to_local())


def _whole(parameter: Tensor) -> Tensor:
    """Return a parameter in main memory. Ranks that have split its rows (FSDP2) gather them."""
    gather = getattr(parameter, "full_tensor", None)
    whole: Tensor = (gather() if gather else parameter).detach().cpu()
    return whole
