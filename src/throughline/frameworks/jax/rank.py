"""A rank of `jax`: one process per device, gloo on CPUs and NCCL on GPUs.

A step is one compiled program over the mesh of all devices. It takes all states and returns their next values: on a GPU
in the same memory (they are donated), which would only cost time on a CPU. Every rank computes on its own batch, and
gradients are averaged over the mesh. A single rank runs the same program on a mesh of one device.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING, Any

# The libraries read both when they are imported. By default, JAX takes three quarters of a GPU's memory at its start.
os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import optax
from jax._src import distributed
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from throughline import gpus, memory
from throughline.frameworks.jax.optimizers import build
from throughline.frameworks.rank import FIRST_SCALE, Rank, optimizer_settings, refuse_if

if TYPE_CHECKING:
    from throughline.workloads.in_keras_form import KerasForm

SAME, APART = PartitionSpec(), PartitionSpec("replica")
"""How an array is placed on the mesh: the same on every device, or different rows on each device."""
NEVER_S = 10**6
"""Seconds after which JAX ends a rank because another rank is silent. The default of JAX is 100."""

Batch = dict[str, jax.Array]
State = dict[str, Any]
"""What a step changes: `weights`, `optimizer` (its states) and `scale` (the loss scale) are the same in all replicas;
`own` differs from replica to replica, such as the random numbers of dropout."""


class Jax(Rank):
    form: KerasForm[Any, Any]
    waits = True

    state: State | None = None
    latest: Any = None
    """The result of the work that was queued last."""
    meetings = 0
    """How often the ranks have met at the coordination service."""

    def join(self) -> None:
        jax.config.update("jax_platforms", self.kind)
        if self.kind == "cuda":
            jax.config.update("jax_cuda_visible_devices", str(self.local_rank))
            combined = f"--xla_gpu_all_reduce_combine_threshold_bytes={self.options.bucket_mb << 20}"
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {combined}"
        else:
            os.environ["NPROC"] = str(self.spec.threads)  # the number of threads that XLA starts
        if self.world > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            address = os.environ["RANK_ADDRESSES"].partition(",")[0]
            jax.distributed.initialize(
                address, self.world, self.rank, [self.local_rank], "deactivate",
                heartbeat_timeout_seconds=NEVER_S,  # the launcher watches the ranks, and names the one that is silent
            )  # fmt: skip

    def device(self) -> None:
        precision, cpu = self.spec.precision, self.kind == "cpu"
        refuse_if(cpu and precision == "tf32", "tf32 exists on GPUs only")
        refuse_if(cpu and precision == "fp16", "JAX has no attention in fp16 on CPUs")
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "highest")
        self.at = jax.local_devices()[0]
        mesh = Mesh(jax.devices() if self.exchanges else [self.at], ("replica",))
        self.same, self.apart = NamedSharding(mesh, SAME), NamedSharding(mesh, APART)
        self.form.seed(self.spec.seed)

    def model(self, facts: dict[str, Any]) -> None:
        # Each program that draws a weight runs only once, so optimizing it would take much longer than it saves.
        as_it_was = jax.config.read("jax_disable_most_optimizations")
        jax.config.update("jax_disable_most_optimizations", True)
        self.built = self.form.build(self.spec, facts, self.form.policy(self.spec.precision))
        jax.config.update("jax_disable_most_optimizations", as_it_was)
        self.seed(self.spec.seed + 1 + self.rank)  # the weights are the same on all ranks, the dropout is not

    @property
    def network(self) -> Any:
        """The model with the current weights. Steps keep the weights outside of the model, so they are copied here."""
        if self.state:
            for variable, weight in zip(self.built.trainable_variables, self.state["weights"], strict=True):
                variable.assign(weight.addressable_data(0))
            for variable, value in zip(self.built.non_trainable_variables, self.state["own"], strict=True):
                variable.assign(value.addressable_data(0)[0])
        return self.built

    def data(self, arrays: dict[str, Any]) -> Batch:
        return jax.device_put(arrays, self.at)  # type: ignore[no-any-return]

    def optimizer(self) -> None:
        variables = self.built.trainable_variables
        self.update = build(self.spec.optimizer, self.options.clip, self.form.decays(variables))
        self.rate = self.spec.optimizer.learning_rate
        self.half = self.spec.precision == "fp16"
        weights = [self._taken(variable) for variable in variables]
        moments = jax.jit(self.update.transform.init, out_shardings=self.same)(weights)
        scale = self._placed(np.float32(FIRST_SCALE if self.half else 1), self.same)
        self.state = {"weights": weights, "optimizer": moments, "scale": scale, "own": self._own()}
        states = {"weights": SAME, "optimizer": SAME, "scale": SAME, "own": APART}
        mapped = jax.shard_map(
            self._stepped,
            mesh=self.same.mesh,
            in_specs=(states, APART, SAME),
            out_specs=(states, APART),
            check_vma=False,  # JAX must add no averages: `_stepped` averages the gradients once a step
        )
        self.compiled = jax.jit(mapped, donate_argnums=0 if self.kind == "cuda" else ())

    def _own(self) -> list[jax.Array]:
        return [self._placed(variable.value[None], self.apart) for variable in self.built.non_trainable_variables]

    def _taken(self, variable: Any) -> jax.Array:
        """Return a variable's value on the mesh. The variable shares the memory of its part, so there is one copy."""
        weight = self._placed(variable.value, self.same)
        variable.assign(weight.addressable_data(0))
        return weight

    @staticmethod
    def _placed(value: Any, sharding: NamedSharding) -> jax.Array:
        """Place on the mesh this process's part of an array, or an array that is the same in all processes."""
        return jax.make_array_from_process_local_data(sharding, np.asarray(value))

    def _side_by_side(self, array: jax.Array) -> jax.Array:
        """Return the batches of all replicas as one array. `array` is the part on this rank's device."""
        shape = (len(array) * self.apart.mesh.size, *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, self.apart, [array])

    def _stepped(self, state: State, batches: list[Batch], rate: jax.Array) -> tuple[State, jax.Array]:
        """Make a replica's step. It is compiled as a whole, and its averages are over the mesh."""
        weights, scale = state["weights"], state["scale"]

        def scaled_loss(weights: Any, own: Any, batch: Batch) -> tuple[jax.Array, Any]:
            loss, own = self.built.stateless_call(weights, own, batch)
            return loss * scale, own

        def micro_step(sums: Any, batch: Batch) -> tuple[Any, None]:
            gradients, total, own = sums
            (loss, own), more = jax.value_and_grad(scaled_loss, has_aux=True)(weights, own, batch)
            return (jax.tree.map(jnp.add, gradients, more), total + loss, own), None

        start = [jnp.zeros_like(weight) for weight in weights], jnp.zeros(()), [value[0] for value in state["own"]]
        stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *batches)
        (gradients, total, own), _ = jax.lax.scan(micro_step, start, stacked)
        mean = 1 / (len(batches) * scale)
        gradients = [gradient * mean for gradient in gradients]
        if self.apart.mesh.size > 1:  # XLA would copy all gradients for an average over one device
            gradients = jax.lax.pmean(gradients, "replica")
        moves, optimizer = self.update.transform.update(gradients, state["optimizer"], weights)
        moved = [weight - rate * move for weight, move in zip(weights, moves, strict=True)]
        after = {"weights": moved, "optimizer": optimizer, "scale": scale}
        if self.half:  # a step that overflows changes only the scale and what is own to the replica
            finite = jnp.all(jnp.stack([jnp.isfinite(gradient).all() for gradient in gradients]))
            before = {name: state[name] for name in after} | {"scale": scale / 2}
            after = jax.tree.map(partial(jnp.where, finite), after, before)
        return {**after, "own": [value[None] for value in own]}, (total * mean)[None]

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def step(self, batches: list[Batch]) -> Any:
        of_all = jax.tree.map(self._side_by_side, batches)
        self.state, loss = self.compiled(self.state, of_all, np.float32(self.rate))
        if self.latest is not None:
            self.latest.block_until_ready()
        self.latest = loss
        return loss

    def sync(self) -> None:
        jax.block_until_ready((self.state, self.latest))
        self.synced = time.monotonic()

    def barrier(self) -> None:
        """Wait for the other ranks, first at JAX's coordination service: gloo waits 30 seconds to connect."""
        if self.world > 1:
            self.meetings += 1
            distributed.global_state.client.wait_at_barrier(f"meeting {self.meetings}", NEVER_S * 1000)
            multihost_utils.sync_global_devices("barrier")

    def broadcast(self, value: int) -> int:
        return int(multihost_utils.broadcast_one_to_all(np.int32(value))) if self.world > 1 else value

    def losses(self, values: list[Any]) -> list[float]:
        return [value.addressable_data(0).item() for value in values]

    def skipped(self) -> int:
        assert self.state
        return round(np.log2(FIRST_SCALE / float(self.state["scale"]))) if self.half else 0

    def memory(self) -> dict[str, Any]:
        if self.kind == "cpu":
            return memory.of_process()
        counted = self.at.memory_stats()
        needed, reserved = counted["peak_bytes_in_use"], counted.get("peak_pool_bytes")
        reasons = {"reserved_bytes": "this allocator of JAX does not say what it reserves"} if reserved is None else {}
        return {"needed_bytes": needed, "reserved_bytes": reserved, "reasons": reasons}

    @property
    def type_of_products(self) -> Any:
        return {"bf16": jnp.bfloat16, "fp16": jnp.float16}.get(self.spec.precision, jnp.float32)

    def multiplied(self, left: Any, right: Any) -> Any:
        here = (jax.device_put(matrix, self.at).astype(self.type_of_products) for matrix in (left, right))
        return np.asarray(jax.jit(jnp.matmul)(*here).astype(jnp.float32))

    def product(self, size: int) -> Callable[[], Any]:
        dtype = self.type_of_products
        left, right = (jax.random.normal(key, (size, size), dtype) for key in jax.random.split(jax.random.key(0)))
        multiply = jax.jit(jnp.matmul)

        def queued(left: jax.Array, right: jax.Array) -> None:
            self.latest = multiply(left, right)

        return partial(queued, left, right)

    def update_settings(self) -> dict[str, Any]:
        update, decay = self.update, self.spec.optimizer.weight_decay
        return optimizer_settings(self.rate, decay, update.decays_vectors, **update.constants)

    def threads(self) -> int:
        return int(os.environ["NPROC"])

    def from_cache(self) -> bool | None:
        return None if jax.config.jax_compilation_cache_dir else False  # without a folder, nothing is kept

    def versions(self) -> dict[str, str | None]:
        return {
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "optax": optax.__version__,
            **self.form.versions(),
            "xla": self.at.client.platform_version,
            "driver": gpus.driver(),
        }

    def close(self) -> None:
        if self.world > 1:
            jax.distributed.shutdown()

    def seed(self, value: int) -> None:
        self.form.reseed(self.network, value)
        if self.state:
            self.state["own"] = self._own()
        self.barrier()  # rank 0 alone may have evaluated

    def save(self, stream: IO[bytes]) -> None:
        """Write everything that a step changes, as arrays."""
        np.savez(stream, *(np.asarray(array.addressable_data(0)) for array in jax.tree.leaves(self.state)))

    def restore(self, stream: IO[bytes], weights_alone: bool = False) -> None:
        """Read from a file what `save` has written. Only arrays are read, so it cannot run code."""
        leaves, structure = jax.tree.flatten(self.state)
        arrays = np.load(stream, allow_pickle=False)
        read = [self._placed(arrays[f"arr_{number}"], leaf.sharding) for number, leaf in enumerate(leaves)]
        restored = jax.tree.unflatten(structure, read)
        if weights_alone and self.state:
            restored |= {name: self.state[name] for name in ("optimizer", "scale")}
        self.state = restored
