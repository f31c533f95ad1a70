"""The framework `jax`: JAX with one process per device. This file describes it and imports no JAX."""

from throughline.frameworks.description import TRAINS, Framework, Variables

FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""The new and the old variable with the share of a GPU's memory that JAX may use. JAX refuses both together."""
SCHEDULER = "--xla_gpu_enable_latency_hiding_scheduler"
"""XLA's flag for the order of instructions in which the exchange runs beside the backward pass. Its default is off."""


def on_gpus(given: Variables) -> dict[str, str]:
    """Let JAX use nearly all of the memory, as it needs it (by default three quarters), and let XLA hide the
    exchange."""
    flags = given.get("XLA_FLAGS", "")
    chosen = {"XLA_PYTHON_CLIENT_PREALLOCATE": given.get("XLA_PYTHON_CLIENT_PREALLOCATE", "false")}
    if not any(name in given for name in FRACTIONS):
        chosen[FRACTIONS[0]] = "0.95"
    if SCHEDULER not in flags:
        chosen["XLA_FLAGS"] = f"{flags} {SCHEDULER}=true".strip()
    return chosen


FRAMEWORK = Framework(
    rank="jax.rank:Jax",
    library="keras",
    packages=("jax", "optax", "keras-hub"),
    compiles=True,
    # Without the variable, JAX takes most of the memory of every GPU, even if it only counts them.
    accelerators={
        "cuda": "import os; os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'; import json, jax; "
        "gpus = [device for device in jax.devices() if device.platform == 'gpu']; "
        "print(json.dumps({'count': len(gpus), 'name': gpus[0].device_kind if gpus else None, 'fp16': bool(gpus)}))"
    },
    features=TRAINS | {"bf16", "activation_checkpointing"},
    gpus_only=frozenset({"amp"}),
    on_gpus=on_gpus,
    reasons={
        "compile": "JAX has no compiler to switch on: its steps are always compiled by XLA",
        "cuda_graph": "XLA decides by itself what it replays as a CUDA graph",
    },
)
