"""The options of a run that every framework knows, and how many steps a run takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from throughline.spec.part import Part, key
from throughline.spec.topology import Layout

SETTLED_S = 30.0
"""So long takes a GPU until its clocks and its power have settled. A shorter window can give a speed that it does not
keep."""


@dataclass(frozen=True)
class Steps(Part):
    warmup: int = key("optimizer steps before the clock starts", default=20, least=0)
    timed: int = key("optimizer steps inside the timed window", default=100, least=1)
    max_total_seconds: float | None = key(
        "the longest that warm-up and timed steps together take, in seconds, without the first step, "
        "in which some libraries compile. A slow device or a large model gets fewer of both, but at least 2 and 3; "
        "the record says so. null: every run takes all steps",
        default=None,
        above=0,
    )
    min_window_seconds: float | None = key(
        "the shortest timed window, in seconds: it gets more steps than `timed` until it is expected to last so "
        "long. null: 30 on a GPU if `timed` and `max_total_seconds` have their defaults, because clocks and power "
        "take so long to settle, and otherwise 0. 0: exactly `timed` steps. With `max_total_seconds`, the cap "
        "decides. The record says what was applied",
        default=None,
        least=0,
    )

    def shortest_s(self, kind: str) -> float:
        """Return the shortest window on a device of this kind, in seconds; 0 if `timed` alone decides."""
        if self.min_window_seconds is not None:
            return self.min_window_seconds
        chosen = self.timed != Steps.timed or self.max_total_seconds is not None
        return 0.0 if chosen or kind == "cpu" else SETTLED_S

    def mistakes(self) -> Iterable[str]:
        """Yield a text for each mistake that involves several keys. Each text begins with a key."""
        shortest, longest = self.min_window_seconds, self.max_total_seconds
        if longest is not None and shortest and shortest >= longest:
            what = f"min_window_seconds = {shortest:g}"
            yield f"{what}: max_total_seconds = {longest:g} leaves no room for such a window"


@dataclass(frozen=True)
class Options(Part):
    """The options of all frameworks. Options of a single framework are fields of its own dataclass
    (`frameworks.Options` has them all)."""

    clip: Literal["none", "value", "norm", "global_norm"] = key(
        "gradient clipping at 1.0: by value, by each tensor's norm, by the global norm", default="none"
    )
    gradient_accumulation: int = key(
        "micro-batches per optimizer step, the same on every topology; see also `global_batch`", default=1, least=1
    )
    compile: bool | Literal["auto"] = key(
        "compile the model: torch.compile in PyTorch, XLA in TensorFlow, to_static in Paddle. JAX always "
        "compiles, so its cells with `true` are n/a. auto: on GPUs, if framework and model can, and if the run is not "
        "over before a compilation pays; records and titles of tables say what was done",
        default=False,
    )
    cuda_graph: Literal["none", "step"] = key(
        "step: replay the whole optimizer step on the GPU as one CUDA graph, with the exchange of gradients, clipping, "
        "loss scaler and update. It helps if kernels take longer to launch than to compute. A step that cannot be "
        "recorded ends as `unsupported`",
        default="none",
    )
    activation_checkpointing: bool | Literal["selective"] = key(
        "recompute activations in the backward pass to save memory. selective: products with weights and attention "
        "are kept, and all else is recomputed",
        default=False,
    )
    remove_padding: bool | Literal["auto"] = key(
        "compute only the real tokens, without padding. auto: on GPUs, if the framework and the model can, and "
        "`cuda_graph` is none; records have the value that it took and the reason",
        default=False,
    )
    data: Literal["real", "synthetic"] = key("the data that the model reads, or synthetic batches", default="real")
    image_decoder: Literal["pillow", "dali"] = key(
        "what decodes the files of pictures: Pillow in processes beside each rank, or NVIDIA's DALI in the "
        "rank itself, on its GPU or on the CPU. If the framework's environment lacks DALI, a run ends as `unsupported`",
        default="pillow",
    )
    gradient_sync: bool = key(
        "false: every rank keeps its own gradients, to show how much time their exchange takes", default=True
    )
    checkpoint: bool = key(
        "after the window, measure what checkpoints cost: saving, saving beside the steps, loading, and a restart of "
        "killed ranks; `runs.checkpoints` says where they are written",
        default=False,
    )
    reduce_dtype: Literal["fp32", "bf16"] = key(
        "the type in which the replicas exchange gradients. bf16 sends half the bytes and rounds every gradient to "
        "8 bits before the sum; weights and updates stay in fp32",
        default="fp32",
    )
    bucket_mb: int = key("MiB of gradients per all-reduce", default=25, least=1)
    dropout: float = key("dropout of the model", default=0.1, least=0, below=1)
    memory_limit_mb: int | None = key(
        "MiB of memory for each worker on a CPU; a run that needs more ends as out of memory", default=None, least=1
    )
    sharding: Literal["none", "zero1", "shard_grad_op", "full_shard"] = key(
        "what the replicas split instead of each keeping a copy: the optimizer's states (`zero1`); or states, "
        "gradients and weights, gathered once a step (`shard_grad_op`) or for each layer in each pass (`full_shard`)",
        default="none",
    )
    hybrid_shard_groups: int | Literal["nodes"] = key(
        "with sharding: groups of replicas, each of which splits the whole (hybrid sharding); gradients are averaged "
        "over all groups. nodes: each node is a group, so that weights travel within nodes only",
        default=1,
    )
    fp8_scaling: Literal["tensorwise", "rowwise"] = key(
        "the scales of a decoder's products in fp8: one for each operand, or one for each of its rows. They are "
        "computed again in every pass",
        default="tensorwise",
    )
    tensor_parallel: int = key("devices that share one replica of the model (tensor parallelism)", default=1, least=1)
    expert_parallel: int = key(
        "replicas that share the experts of a model: each holds a part of them, and tokens travel to them and back "
        "(expert parallelism)",
        default=1,
        least=1,
    )

    def mistakes(self) -> Iterable[str]:
        """Yield a text for each mistake that the types of single keys do not show. Each text begins with a key."""
        if self.hybrid_shard_groups != "nodes" and self.hybrid_shard_groups < 1:
            yield f"hybrid_shard_groups = {self.hybrid_shard_groups}: at least 1 group, or nodes"

    @property
    def layout(self) -> Layout:
        """How the model is divided among its ranks."""
        return Layout(self.tensor_parallel, self.sharding, self.hybrid_shard_groups, self.expert_parallel)
