"""The options of a run that every framework knows, and how many steps a run takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from throughline.spec.part import Part, key
from throughline.spec.topology import Layout

SETTLED_S = 30.0
"""So long takes a GPU until its clocks and its power have settled. A shorter window can give a speed that it does not
keep."""
STEADY_S = 5.0
"""The shortest window on a CPU unless a configuration says otherwise: in a second or two, what else runs on the machine
moves a median by tens of percent."""
MOST_TIMED = 20_000
"""We add no more timed steps than this to fill a window, because a record has every step."""


@dataclass(frozen=True)
class Steps(Part):
    warmup: int = key("optimizer steps before the clock starts", default=20, least=0)
    timed: int = key("optimizer steps inside the timed window", default=100, least=1)
    max_total_seconds: float | None = key(
        "most seconds of warm-up and timed steps, without the first step. A slow device gets fewer of both, at least "
        "2 and 3, with a warning",
        default=None,
        above=0,
    )
    min_window_seconds: float | None = key(
        "more steps than `timed` fill so long a window. null: if `timed` and `max_total_seconds` have their "
        "defaults, 30 on a GPU, because clocks and power take so long to settle, and 5 on a CPU; otherwise 0",
        default=None,
        least=0,
    )

    def shortest_s(self, kind: str) -> float:
        """Return the shortest window on a device of this kind, in seconds; 0 if `timed` alone decides."""
        if self.min_window_seconds is not None:
            return self.min_window_seconds
        chosen = self.timed != Steps.timed or self.max_total_seconds is not None
        return 0.0 if chosen else STEADY_S if kind == "cpu" else SETTLED_S

    def mistakes(self) -> Iterable[str]:
        """Yield a text for each mistake that involves several keys. Each text begins with a key."""
        shortest, longest = self.min_window_seconds, self.max_total_seconds
        if longest is not None and shortest and shortest >= longest:
            what = f"min_window_seconds = {shortest:g}"
            yield f"{what}: max_total_seconds = {longest:g} leaves no room for such a window"


@dataclass(frozen=True)
class Options(Part):
    """The options of all frameworks. Those of a single framework are fields of its own dataclass."""

    clip: Literal["none", "value", "norm", "global_norm"] = key(
        "gradient clipping at 1.0: by value, by each tensor's norm, by the global norm", default="none"
    )
    gradient_accumulation: int = key("micro-batches per optimizer step; see also `global_batch`", default=1, least=1)
    compile: bool | Literal["auto"] = key(
        "torch.compile, XLA in TensorFlow, to_static in Paddle. JAX always compiles, so its cells with `true` are "
        "n/a. auto: on GPUs where it can and pays",
        default=False,
    )
    cuda_graph: Literal["none", "step"] = key(
        "step: replay the optimizer step as one CUDA graph, which helps if kernels take longer to launch than to "
        "compute",
        default="none",
    )
    activation_checkpointing: bool | Literal["selective"] = key(
        "recompute activations in the backward pass. selective: all but products with weights and attention",
        default=False,
    )
    remove_padding: bool | Literal["auto"] = key(
        "compute only real tokens. auto: on GPUs, if framework and model can and `cuda_graph` is none",
        default=False,
    )
    data: Literal["real", "synthetic", "reading"] = key(
        "reading: ranks read and train nothing; the extra `reading` sets it", default="real"
    )
    image_decoder: Literal["pillow", "dali"] = key(
        "Pillow in processes beside each rank, or NVIDIA's DALI in the rank (`throughline dali` installs it)",
        default="pillow",
    )
    gradient_sync: bool = key("false: every rank keeps its own gradients", default=True)
    checkpoint: bool = key(
        "after the window, measure checkpoints and a restart; the extra `checkpoint` sets it", default=False
    )
    reduce_dtype: Literal["fp32", "bf16"] = key(
        "type in which replicas exchange gradients. bf16 rounds each gradient before the sum", default="fp32"
    )
    bucket_mb: int = key("MiB of gradients per all-reduce", default=25, least=1)
    dropout: float = key("dropout of the model", default=0.1, least=0, below=1)
    memory_limit_mb: int | None = key("MiB of memory for each worker on a CPU", default=None, least=1)
    sharding: Literal["none", "zero1", "shard_grad_op", "full_shard"] = key(
        "what replicas split: the optimizer's states (`zero1`); states, gradients and weights, gathered once a step "
        "(`shard_grad_op`) or for each layer in each pass (`full_shard`)",
        default="none",
    )
    hybrid_shard_groups: int | Literal["nodes"] = key(
        "groups of replicas, each of which splits the whole. nodes: each node is a group", default=1
    )
    fp8_scaling: Literal["tensorwise", "rowwise"] = key(
        "scales of a decoder's products in fp8: for each operand, or for each of its rows", default="tensorwise"
    )
    tensor_parallel: int = key("devices that share one replica of the model", default=1, least=1)
    expert_parallel: int = key("replicas that share the experts of a model", default=1, least=1)

    def mistakes(self) -> Iterable[str]:
        """Yield a text for each mistake that the types of single keys do not show. Each text begins with a key."""
        if self.hybrid_shard_groups != "nodes" and self.hybrid_shard_groups < 1:
            yield f"hybrid_shard_groups = {self.hybrid_shard_groups}: at least 1 group, or nodes"

    @property
    def layout(self) -> Layout:
        """How the model is divided among its ranks."""
        return Layout(self.tensor_parallel, self.sharding, self.hybrid_shard_groups, self.expert_parallel)
