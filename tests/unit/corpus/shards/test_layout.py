"""Shard files are complete or absent, readable everywhere, and have the given content."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from corpus_helpers import read_shard
from throughline.corpus.shards import layout, making
from throughline.files import UserError


def blocks_of(arrays: dict[str, np.ndarray], rows: int = layout.ROWS_PER_CHUNK) -> list[dict[str, np.ndarray]]:
    return [
        {name: array[begin : begin + rows] for name, array in arrays.items()}
        for begin in range(0, len(arrays["input_ids"]), rows)
    ]


def arrays_of(rows: int, sequence_length: int = 16, predictions: int = 3) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(rows)
    return {
        name: chance.integers(0, 2 if layout.TYPES[name] == "i1" else 30522, size=shape).astype(layout.TYPES[name])
        for name, shape in layout.shapes(rows, sequence_length, predictions).items()
    }


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    rows, sequence_length = arrays["input_ids"].shape
    making.write(path, blocks_of(arrays), rows, sequence_length, arrays["masked_lm_ids"].shape[1], "{}")


@pytest.mark.parametrize("rows", [0, 1, 2047, 2048, 2049, 5000])
def test_what_is_written_is_read(tmp_path: Path, rows: int) -> None:
    arrays = arrays_of(rows)
    path = tmp_path / "training_0000.hdf5"
    write(path, arrays)
    found = read_shard(path)
    assert list(found) == list(layout.TYPES)
    for name, kind in layout.TYPES.items():
        assert found[name].dtype == kind
        assert np.array_equal(found[name], arrays[name])
    assert layout.size(path) == (rows, 16, 3)
    with h5py.File(path) as stream:
        assert stream.attrs["complete"]
        if rows:
            assert stream["input_ids"].compression == "gzip" and stream["input_ids"].shuffle
            assert stream["input_ids"].chunks == (min(rows, 2048), 16)


def test_an_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> object:
        yield from blocks_of(arrays_of(2048))
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        making.write(tmp_path / "shard.hdf5", failing(), 4096, 16, 3, "{}")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2048 rows were given"):
        making.write(tmp_path / "shard.hdf5", blocks_of(arrays_of(2048)), 4096, 16, 3, "{}")
    assert list(tmp_path.iterdir()) == []


def flipped(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    with h5py.File(path) as stream:
        place = stream["input_ids"].id.get_chunk_info(0)
    data[place.byte_offset + place.size // 2] ^= 4
    return bytes(data)


def changed(change: Callable[[h5py.File], object]) -> Callable[[Path], bytes]:
    def made(path: Path) -> bytes:
        with h5py.File(path, "a") as stream:
            change(stream)
        return path.read_bytes()

    return made


def replaced(name: str, **dataset: Any) -> Callable[[Path], bytes]:
    return changed(lambda stream: (stream.__delitem__(name), stream.create_dataset(name, **dataset)))


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda path: path.read_bytes()[:2000], "is no whole shard"),
        (lambda path: b"not hdf5", "is no whole shard"),
        (flipped, "is no whole shard"),
        (changed(lambda stream: stream.attrs.__delitem__("complete")), "its writing was interrupted"),
        (changed(lambda stream: stream.__delitem__("input_ids")), "it lacks input_ids"),
        (replaced("input_ids", data=np.zeros((9, 16), "i4")), "has the shape"),
        (replaced("masked_lm_ids", data=np.zeros(10, "i4")), "have to be tables"),
        (replaced("input_mask", data=np.zeros((10, 16), "f4")), "has the type float32, not i1"),
        (changed(lambda stream: stream.create_dataset("a_lengths", data=[1])), "it lacks b_lengths"),
    ],
)
def test_damaged_shards(tmp_path: Path, damaged: Callable[[Path], bytes], why: str) -> None:
    path = tmp_path / "shard.hdf5"
    with pytest.raises(UserError, match="does not exist"):
        read_shard(path)
    write(path, arrays_of(10))
    path.write_bytes(damaged(path))
    with pytest.raises(UserError, match=why):
        read_shard(path)


def test_the_reader_needs_numpy_and_h5py_only() -> None:
    code = (
        "import sys; from throughline.corpus import reading;"
        "own = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names);"
        "print(sorted(name for name in own if not name.startswith('_')"
        " and getattr(sys.modules.get(name), '__file__', None) and 'site-packages' in sys.modules[name].__file__))"
    )
    environment = {"PYTHONPATH": os.environ["PYTHONPATH"], "PATH": ""}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert eval(run.stdout) == ["h5py", "numpy"]
