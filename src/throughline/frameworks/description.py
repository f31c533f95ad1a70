"""What the rest of the program has to know about a framework (`Framework`), and the features that one can have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from throughline.frameworks.starters import Starter
from throughline.spec import Part

FEATURES = {
    "devices": "several devices",
    "nodes": "several nodes",
    "amp": "mixed precision with fp16 (AMP)",
    "bf16": "mixed precision with bf16",
    "fp8": "matrix products in fp8",
    "rowwise": "a scale for each row in fp8 (fp8_scaling: rowwise)",
    "compile": "compiled model",
    "cuda_graph": "whole steps replayed as a CUDA graph",
    "gradient_accumulation": "gradient accumulation",
    "clipping": "gradient clipping",
    "activation_checkpointing": "recomputed activations",
    "selective": "recomputed activations except products and attention (activation_checkpointing: selective)",
    "remove_padding": "padding left out",
    "sharding": "states split over replicas (sharding)",
    "hybrid_shard_groups": "sharding within groups of replicas (hybrid sharding)",
    "reduce_dtype": "gradients exchanged in bf16",
    "tensor_parallel": "several devices for one replica (tensor parallelism)",
    "expert_parallel": "experts spread over replicas (expert parallelism)",
    "own_gradient_sync": "parameters that a model's ranks exchange in a way of their own (split tables)",
    "convergence": "convergence check with checkpoints",
}
"""Map each feature that a framework can have to its words in the feature matrix."""

TRAINS = frozenset({"devices", "nodes", "amp", "gradient_accumulation", "clipping", "convergence"})
"""The features of every framework with a loop of our own."""
Variables = Mapping[str, str]


def none(given: Variables) -> dict[str, str]:
    """Return the additional environment variables of a framework that needs none."""
    return {}


@dataclass(frozen=True)
class Framework:
    """What the rest of the program has to know about a framework without importing its library.

    It is the constant FRAMEWORK in the `__init__.py` of the framework's folder.

    * rank: module and class of its Rank, as `module:Class` below this package
    * library: the library whose implementation of a workload it trains (`workloads.form`)
    * packages: the packages whose versions decide what is measured, by their names in its pins for CPUs and for GPUs
    * accelerators: each kind of accelerator that it trains on, and a line of Python that prints {count, name, fp16} of
      those that it sees in its environment. `runs.device: auto` takes the first kind that it sees
    * features: those of FEATURES that it has; gpus_only: those that it has on GPUs only. On a CPU its Rank refuses them
    * reasons: why some features are missing
    * options: a dataclass of the options that only it has; several frameworks may share it
    * starter: its own launcher, which starts the ranks; None if the agent of each node starts them
    * calls: it can measure a workload that trains nothing; checkpoints: it measures what checkpoints cost
      (options.checkpoint); jobs: it trains whole jobs, with epochs and evaluations
    * on_gpus: takes the environment variables that the user has set, and returns those that ranks on GPUs get in
      addition: what the framework's own users set to be fast. It never changes a setting of the user
    * compiles: it compiles every step, whatever `options.compile` says. The first step may then take minutes
    * not_compiled_with: for each feature that a compiled model cannot have, the reason
    * needs_compiler: `options.compile` needs a C compiler on every node with GPUs
    """

    rank: str
    library: str
    packages: tuple[str, ...]
    accelerators: Mapping[str, str]
    features: frozenset[str]
    gpus_only: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)
    options: type[Part] | None = None
    starter: Starter | None = None
    calls: bool = False
    jobs: bool = False
    checkpoints: bool = False
    compiles: bool = False
    not_compiled_with: Mapping[str, str] = field(default_factory=dict)
    needs_compiler: bool = False
    on_gpus: Callable[[Variables], dict[str, str]] = none
