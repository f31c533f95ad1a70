"""Small corpora in NVIDIA's layout and run specifications for the tests of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from throughline import files
from throughline.study.runs import PROTOCOL, RunSpec

VOCABULARY = 1000


def corpus(folder: Path, *, shards: int = 3, rows: int = 40, sequence: int = 32, predictions: int = 5) -> Path:
    """Write shards as NVIDIA's script does (gzip 4, i4 and i1, nothing else in the file); return the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(7)
    entries = []
    for shard in range(shards):
        lengths = draw.integers(sequence // 2, sequence + 1, rows)
        real = np.arange(sequence) < lengths[:, None]
        counts = draw.integers(1, predictions + 1, rows)
        used = np.arange(predictions) < counts[:, None]
        positions = np.sort(draw.permuted(np.tile(np.arange(1, sequence // 2), (rows, 1)), axis=1)[:, :predictions])
        arrays = {
            "input_ids": (draw.integers(10, 60, (rows, sequence)) * real).astype("i4"),
            "input_mask": real.astype("i1"),
            "segment_ids": ((np.arange(sequence) > sequence // 2) & real).astype("i1"),
            "masked_lm_positions": (positions * used).astype("i4"),
            "masked_lm_ids": (draw.integers(10, 60, (rows, predictions)) * used).astype("i4"),
            "next_sentence_labels": draw.integers(0, 2, rows).astype("i1"),
        }
        path = folder / f"training_{shard:04d}.hdf5"
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, compression="gzip", compression_opts=4)
        entries.append(
            {
                "file": path.name,
                "split": "training",
                "rows": rows,
                "sha256": files.sha256(path),
                "content_digest": f"{shard:064x}",
            }
        )
    manifest = folder / "manifest.json"
    content = {
        "schema": 1,
        "sequence": sequence,
        "predictions": predictions,
        "vocabulary": {"size": VOCABULARY},
        "content_digest": "ab" * 32,
        "rows": shards * rows,
        "shards": entries,
    }
    manifest.write_text(json.dumps(content))
    return manifest


def spec(**changes: Any) -> RunSpec:
    """A run of bert-tiny that takes a second; maps among `changes` are merged."""
    value: dict[str, Any] = {
        "benchmark": "bert",
        "framework": "torch",
        "model": "bert-tiny",
        "sequence": 32,
        "predictions": 5,
        "batch_per_device": 4,
        "precision": "fp32",
        "topology": "1n1g",
        "repeat": 1,
        "steps": {"warmup": 2, "timed": 4, "at_most_s": None},
        "device": "cpu",
        "corpus": {"name": "sample", "digest": "0123456789ab"},
        "protocol": PROTOCOL,
    }
    for key, change in changes.items():
        value[key] = value[key] | change if isinstance(value.get(key), dict) and isinstance(change, dict) else change
    if value.get("options", {}).get("data") == "synthetic":
        value["corpus"] = None
    return RunSpec.model_validate_json(json.dumps(value))
