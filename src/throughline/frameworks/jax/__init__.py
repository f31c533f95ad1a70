"""The framework `jax`: JAX with one process per device. This file describes it and imports no JAX."""

from throughline.frameworks.description import Framework

FRAMEWORK = Framework(
    rank="jax.rank:Jax",
    library="keras",
    packages=("jax", "optax", "keras-hub"),
    compiles=True,
    # Without the variable, JAX takes most of the memory of every GPU, even if it only counts them.
    accelerators={
        "cuda": "import os; os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'; import json, jax; "
        "found = [one for one in jax.devices() if one.platform == 'gpu']; "
        "print(json.dumps({'count': len(found), 'name': found[0].device_kind if found else None, 'fp16': bool(found)}))"
    },
    features=frozenset({"devices", "nodes", "amp", "bf16", "accumulation", "clipping", "checkpointing", "convergence"}),
    gpus_only=frozenset({"amp"}),
    reasons={
        "compile": "JAX has no compiler to switch on: its steps are always compiled by XLA",
        "graph": "XLA decides by itself what it replays as a CUDA graph",
    },
)
