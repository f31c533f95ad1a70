"""Save and load the whole state of a training with torch.distributed.checkpoint, as users of PyTorch do.

Each rank writes a file, with the parts of tensors that it holds. What all ranks hold alike is written by one of them.
With `sharding: zero1`, a rank writes the states of those weights that it updates. Files are synced to the disk before a
save ends.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from throughline.frameworks.rank import refuse_if
from throughline.frameworks.torch.norms import here

if TYPE_CHECKING:
    from throughline.frameworks.torch.ddp import TorchDDP


class Checkpoints:
    """The checkpoints of one rank. Every rank calls each method, at the same time."""

    def __init__(self, rank: TorchDDP) -> None:
        own_parts = "ranks hold different parts of a tensor under one name, and a checkpoint would keep one of them"
        refuse_if(bool(rank.tensor or rank.experts or rank.spread), own_parts)
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # a single process saves alone
        self.rank = rank
        update = rank.update
        optimizers = getattr(update, "optimizers", {"": update})
        self.optimizers: dict[str, Any] = {name: getattr(each, "optim", each) for name, each in optimizers.items()}
        # A save in the background exchanges its plans while the steps exchange gradients, so both need own groups.
        self.group = dist.new_group(backend="gloo") if rank.world > 1 else None

    def save(self, folder: Path) -> None:
        """Write a checkpoint. It returns when all files are on the disk."""
        library = _library()
        library.save(self._state(), storage_writer=library.FileSystemWriter(folder), process_group=self.group)

    def save_async(self, folder: Path) -> Any:
        """Copy the state, and write it in a thread. Return the future, which is done when all files are on the disk."""
        library = _library()
        writer = library.FileSystemWriter(folder)
        return library.async_save(self._state(), storage_writer=writer, process_group=self.group)

    def load(self, folder: Path) -> None:
        """Read a checkpoint into the weights, the optimizer's states and the loss scaler."""
        library, state = _library(), self._state()
        library.load(state, storage_reader=library.FileSystemReader(folder), process_group=self.group)
        for name, optimizer in self.optimizers.items():
            for group, loaded in zip(optimizer.param_groups, state["groups"][name], strict=True):
                group |= loaded
        self.rank.scaler.load_state_dict(state["scaler"])

    def _state(self) -> dict[str, Any]:
        """Return the state by names that are the same on every number of ranks. Its tensors are those in use."""
        names = {weight: name for name, weight in self.rank.network.named_parameters()}
        states, groups = dict[str, Any](), dict[str, Any]()
        for name, optimizer in self.optimizers.items():
            states |= {names[weight]: state for weight, state in optimizer.state.items() if state}
            groups[name] = [{key: value for key, value in group.items() if key != "params"}
                            for group in optimizer.param_groups]  # fmt: skip
        scaler = self.rank.scaler.state_dict()
        return {"weights": self.rank.network.state_dict(), "states": states, "groups": groups, "scaler": scaler}

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights and states of this rank. Buffers, which differ between ranks, are not among them."""
        for name, weight in self.rank.network.named_parameters():
            held = [weight.detach()]
            for optimizer in self.optimizers.values():
                held += [value for value in optimizer.state.get(weight, {}).values() if isinstance(value, Tensor)]
            yield from ((name, part) for part in here(held))

    def digest(self) -> str:
        """Return the SHA-256 of the weights and states that this rank holds."""
        digest = hashlib.sha256()
        for name, tensor in self._tensors():
            digest.update(name.encode())
            content: Any = tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
            digest.update(content)
        return digest.hexdigest()

    def spoil(self) -> None:
        """Set all weights and states of this rank to 0, so that only a load can bring them back."""
        for _, tensor in self._tensors():
            tensor.zero_()


def _library() -> Any:
    """Return torch.distributed.checkpoint, which has no types. Only runs that measure checkpoints import it."""
    import torch.distributed.checkpoint

    return torch.distributed.checkpoint
