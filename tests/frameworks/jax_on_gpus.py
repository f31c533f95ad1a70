"""Helper process, in JAX's environment: the calls of cuDNN in steps that are lowered for a GPU.

It needs no GPU, because JAX lowers for other platforms, too. Arguments: specifications (JSON). For each it prints the
names of the calls with their numbers.
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


def lowered(spec: Any) -> dict[str, int]:
    rank: Any = load("jax")(spec, 0, 0, 1, "cpu")
    importlib.import_module("throughline.workloads.in_keras_form").has_causal_kernel = lambda: True
    fused: Any = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    fused.check_compute_capability, fused.check_cudnn_version = lambda least: True, lambda: 92000
    jax: Any = importlib.import_module("jax")
    workload = workloads.of(spec.model)
    rank.join()
    rank.device()
    rank.model(workload.facts(None))
    rank.kind = "cuda"
    rank.optimizer()
    every = [jax.tree.map(rank._side_by_side, rank.data(workload.synthetic(spec.batch, spec, 1)))]
    text = rank.compiled.trace(rank.state, every, np.float32(0)).lower(lowering_platforms=("cuda",)).as_text()
    return collections.Counter(re.findall(r"__cudnn\$(\w+)", text))


if __name__ == "__main__":
    for words in sys.argv[1:]:
        print(json.dumps(lowered(frameworks.specification(json.loads(words)))))
