"""Small corpora in NVIDIA's layout, and run specifications, for the tests of training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from throughline import files
from throughline.launch import nodes
from throughline.messages import LaunchPlan, Measured, Memory, RankReport, Software, Window
from throughline.spec import RunSpec, Topology
from throughline.study.runs import PROTOCOL, read_spec

VOCABULARY, LENGTH, PREDICTIONS = 1000, 32, 5
GROUPS: list[Any] = []
"""Every group that `group_of_one` has made."""


@contextmanager
def group_of_one() -> Iterator[None]:
    """Let this process be the only rank of a gloo group.

    The group stays in GROUPS until the process ends. When the last reference to a group goes, PyTorch waits for gloo's
    threads and holds the interpreter's lock. Such a thread may need this lock to release its last message. Then both
    wait for ever, and no signal ends the test.
    """
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    GROUPS.append(dist.group.WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


def corpus(folder: Path, *, shards: int = 3, held_out: int = 0, rows: int = 40) -> Path:
    """Write shards as NVIDIA's script does (gzip 4, i4 and i1, nothing else in the file); return the manifest.

    held_out: how many of them, the last ones, are a test.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(7)
    entries = []
    for shard in range(shards):
        lengths = draw.integers(LENGTH // 2, LENGTH + 1, rows)
        real = np.arange(LENGTH) < lengths[:, None]
        counts = draw.integers(1, PREDICTIONS + 1, rows)
        used = np.arange(PREDICTIONS) < counts[:, None]
        places = draw.permuted(np.tile(np.arange(1, LENGTH // 2), (rows, 1)), axis=1)
        arrays = {
            "input_ids": (draw.integers(10, 60, (rows, LENGTH)) * real).astype("i4"),
            "input_mask": real.astype("i1"),
            "segment_ids": ((np.arange(LENGTH) > LENGTH // 2) & real).astype("i1"),
            "masked_lm_positions": (np.sort(places[:, :PREDICTIONS]) * used).astype("i4"),
            "masked_lm_ids": (draw.integers(10, 60, (rows, PREDICTIONS)) * used).astype("i4"),
            "next_sentence_labels": draw.integers(0, 2, rows).astype("i1"),
        }
        path = folder / f"training_{shard:04d}.hdf5"
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, compression="gzip", compression_opts=4)
        split = "training" if shard < shards - held_out else "test"
        digests = {"sha256": files.sha256(path), "content_digest": f"{shard:064x}"}
        entries.append({"file": path.name, "split": split, "rows": rows, **digests})
    content = {
        "schema": 1, "sequence_length": LENGTH, "predictions": PREDICTIONS, "vocabulary": {"size": VOCABULARY},
        "content_digest": "ab" * 32, "rows": shards * rows, "shards": entries,
    }  # fmt: skip
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(content))
    return manifest


def spec(**changes: Any) -> RunSpec:
    """Return the specification of a run of bert-tiny that takes a second. `changes` replace keys; maps are merged."""
    value: dict[str, Any] = {
        "benchmark": "bert", "framework": "torch", "model": "bert-tiny", "sequence_length": LENGTH,
        "predictions": PREDICTIONS, "batch": 4, "precision": "fp32", "topology": "1n1g", "repeat": 1,
        "steps": {"warmup": 2, "timed": 4, "max_total_seconds": None}, "device": "cpu",
        "corpus": {"name": "sample", "digest": "0123456789ab"}, "protocol": PROTOCOL,
    }  # fmt: skip
    of_texts = ("sequence_length", "predictions")
    without = {"gpt": of_texts[1:]} | dict.fromkeys(("res", "all", "ire", "wid"), of_texts)
    for name in without.get(str(changes.get("model"))[:3], ()):
        del value[name]
    for key, change in changes.items():
        value[key] = value[key] | change if isinstance(value.get(key), dict) and isinstance(change, dict) else change
    if value.get("options", {}).get("data") == "synthetic":
        value["corpus"] = None
    return read_spec(json.dumps(value))


DECODER = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
"""The config.json of a small decoder."""


def decoder_spec(content: Any, options: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    """Return the specification of a run of a decoder with this config.json, on synthetic data."""
    named = {"model": "llama-3.1-8b", "task": "clm", "config_sha256": "ab" * 32}
    return replace(spec(**named | changes, options={"data": "synthetic"} | (options or {})), content=content)


def program_spec(program: dict[str, Any], **changes: Any) -> RunSpec:
    """Return the specification of a run of a program that counts steps, for a second. The keys of `program` and
    `changes` replace its own."""
    given = {"command": ["train"], "timing": {"kind": "marks"}, "unit": "steps", "per_step": 1} | program
    value: dict[str, Any] = {
        "benchmark": "mine", "framework": "own", "model": "program", "counts": "steps", "batch": "program",
        "precision": "program", "topology": "1n1g", "repeat": 1, "steps": {"warmup": 3, "timed": 10}, "device": "cpu",
        "options": {"data": "synthetic"}, "protocol": PROTOCOL, "program": given,
    }  # fmt: skip
    return read_spec(json.dumps(value | changes))


def plan(
    topology: str = "1n1g", reach: str = "here", *, run: dict[str, Any] | None = None, **changes: Any
) -> LaunchPlan:
    """Return the plan of a run on `topology`. `run` changes its specification."""
    asked, shape = spec(topology=topology, **run or {}), Topology.parse(topology)
    hosts = [f"host{node}" for node in range(shape.nodes)] if reach in ("slurm", "ssh") else []
    value: dict[str, Any] = {
        "spec": asked.values(), "python": "/env/bin/python", "nodes": shape.nodes, "per_node": shape.devices,
        "agents": nodes.agents(asked.framework, shape.nodes, reach),
        "cores": shape.devices * asked.threads if reach == "slurm" else 0, "kind": "cpu", "manifest": None,
        "variables": {"OMP_NUM_THREADS": "1", "X": "a b"}, "reach": reach, "hosts": hosts, "weights": None,
        "workflow": "python", "telemetry": True, "earlier_gpus": [], "strict": False, "convergence": None,
    }  # fmt: skip
    return LaunchPlan(**value | changes)


def measured(rank: int = 0, **changes: Any) -> Measured:
    timed = changes.get("steps_timed", 4)
    value: dict[str, Any] = {
        "window": Window(10.0 + rank / 10, 14.0 + rank), "cpu_seconds": 2.0, "loader_stall_s": 0.4 * rank,
        "facts": {}, "counted": {}, "figures": [], "step_seconds": [1.0] * timed,
        "loss": [9.0 - step / 100 for step in range(timed)], "warmup_loss": [10.0, 9.5], "warmup_steps": 2,
        "steps_timed": timed, "scaler_skipped_steps": 0, "memory": Memory(None, 100 + rank, {}),
        "matmul_flops_per_s": None, "work_reasons": {}, "network": None,
    }  # fmt: skip
    return Measured(**value | changes)


def report(rank: int = 0, **changes: Any) -> RankReport:
    """Return the report of a rank that was measured."""
    software = Software("3.11.7", {"torch": "2.13.0"}, {"numpy": "2.4.6"}, {})
    return RankReport(rank, 1.0, "ok", None, measured(rank, **changes), None, software)
