"""Helper process, in an environment with JAX's CUDA build: the calls of cuDNN in a step that is lowered for a GPU.

It needs neither a GPU nor the fake driver: JAX lowers for other platforms, too. Arguments: a specification (JSON) and
the size of the vocabulary. It prints the names of the calls with their numbers, and how many of its states the step
gives back in the memory that it got them in.
"""

from __future__ import annotations

import collections
import importlib
import json
import re
import sys
from typing import Any

import numpy as np

from throughline import frameworks, workloads
from throughline.frameworks.rank import load


def main() -> None:
    spec, vocabulary = frameworks.specification(json.loads(sys.argv[1])), int(sys.argv[2])
    rank: Any = load("jax")(spec, 0, 0, 1, "cpu")
    importlib.import_module("throughline.workloads.in_keras_form").has_causal_kernel = lambda: True
    importlib.import_module("throughline.workloads.gpt2.in_keras").has_causal_kernel = lambda: True
    fused: Any = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    fused.check_compute_capability = lambda least: True
    jax: Any = importlib.import_module("jax")
    rank.join()
    rank.device()
    rank.model({"vocabulary": vocabulary})
    rank.kind = "cuda"
    rank.optimizer()
    batch = workloads.of(spec.model).synthetic(spec.batch, spec, 1)
    every = [jax.tree.map(rank._side_by_side, rank.data(batch))]
    text = rank.compiled.trace(rank.state, every, np.float32(0)).lower(lowering_platforms=("cuda",)).as_text()
    calls = collections.Counter(re.findall(r"__cudnn\$(\w+)", text))
    kept = text.count("tf.aliasing_output") + text.count("jax.buffer_donor")
    print(json.dumps({"calls": calls, "kept": kept, "states": len(jax.tree.leaves(rank.state))}))


if __name__ == "__main__":
    main()
