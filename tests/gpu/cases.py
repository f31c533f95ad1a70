"""What a run counts: one case is a specification, of which rank 0 is counted. Standard library only.

A case is written as words, as `count.py` takes them: a model, a precision, then `key=value`. The keys are those of a
specification, its options, its optimizer and its workload's parameters, and

    ranks=8          the topology 1n8g
    optimizer=lamb   the name of the optimizer
    card=V100        the card that the fake driver plays (CARDS)
    warmup=99        steps before those that are counted
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from throughline import frameworks, handover, workloads
from throughline.spec import Optimizer, RunSpec, Topology
from throughline.workloads.hugging_face import configuration

CARDS = {
    "H100": {"NULL_CUDA_NAME": "NVIDIA H100 80GB HBM3", "NULL_CUDA_MAJOR": "9", "NULL_CUDA_MINOR": "0"},
    "A100": {"NULL_CUDA_NAME": "NVIDIA A100-SXM4-80GB", "NULL_CUDA_MAJOR": "8", "NULL_CUDA_MINOR": "0"},
    "T4": {"NULL_CUDA_NAME": "Tesla T4", "NULL_CUDA_MAJOR": "7", "NULL_CUDA_MINOR": "5", "NULL_CUDA_MIB": "15360"},
    "V100": {
        "NULL_CUDA_NAME": "Tesla V100-SXM2-32GB", "NULL_CUDA_MAJOR": "7", "NULL_CUDA_MINOR": "0",
        "NULL_CUDA_MIB": "32768",
    },
}  # fmt: skip
"""Map each card to the variables of the fake driver that describe it."""

SMALL: dict[str, dict[str, Any]] = {
    "bert": {"sequence_length": 32, "predictions": 5},
    "gpt2": {"sequence_length": 32},
    "resnet": {"image": 64, "classes": 100},
    "wide_deep": {"vocabulary": 10_000, "embedding": 16, "table": "replicated", "update": "lazy"}
    | {"hidden": 2, "width": 64},
    "faces": {"classes": 1000, "classifier": "data_parallel"},
    "layers": {"sequence_length": 64, "min_seconds": 0.01},
    "micro": {"sizes": [256], "min_seconds": 0.01},
    "collectives": {"sizes": [65_536], "min_seconds": 0.01},
}  # fmt: skip
"""Parameters by the folder of a workload, small enough for a step in milliseconds. Every value can be replaced."""
DECODERS = {
    name: configuration.of_map({"transformers": str(Path(__file__).parents[2] / f"presets/{name}.json"), "task": "clm"})
    for name in ("llama-tiny", "mixture-tiny")
}
"""The configurations of decoders that are cases, by the names of their files."""
FILES = {handover.VARIABLE: handover.packed(models={one.sha256: str(one.file) for one in DECODERS.values()})}
OURS = ("ranks", "card", "warmup")


def specification(model: str, precision: str, words: dict[str, str]) -> dict[str, Any]:
    """Return the JSON values of the specification that the words describe. Raise ValueError for an unknown key."""
    more: dict[str, Any] = {}
    if decoder := DECODERS.get(model):
        model, more = str(decoder), {"task": "clm", "sequence_length": 64, "config_sha256": decoder.sha256}
    workload = workloads.of(model)
    world = int(words.get("ranks", "1"))
    value: dict[str, Any] = {
        "benchmark": "lane", "framework": "torch", "model": model, "batch": 4 if workload.has_batch else 1,
        "precision": precision, "topology": str(Topology(1, world)), "repeat": 1, "device": "cuda", "protocol": 0,
        "options": {"data": "synthetic"}, "optimizer": {}, **SMALL.get(str(workloads.folder(model)), {}), **more,
    }  # fmt: skip
    options = {field.name for field in fields(frameworks.options())}
    optimizer = {field.name for field in fields(Optimizer)}
    for key, text in words.items():
        content = _value(text)
        if key == "optimizer":
            value["optimizer"]["name"] = content
        elif key in options:
            value["options"][key] = content
        elif key in optimizer:
            value["optimizer"][key] = content
        elif key not in OURS:
            value[key] = content
    spec: RunSpec[Any] = frameworks.specification(value)
    return spec.values()


def parse(line: str) -> dict[str, Any]:
    """Return a case from its words: {name, spec, rank, world, variables}."""
    model, precision, *rest = line.split()
    words = dict(word.split("=", 1) for word in rest)
    return {
        "name": line,
        "spec": specification(model, precision, words),
        "world": int(words.get("ranks", "1")),
        "variables": CARDS[words.get("card", "H100")] | FILES,
        **({"warmup": int(words["warmup"])} if "warmup" in words else {}),
    }


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
