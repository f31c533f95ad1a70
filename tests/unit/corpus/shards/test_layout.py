"""Shard files are complete or absent, readable everywhere, and have the given content."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from corpus_helpers import content_digest, read_shard
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


def test_the_content_digest_is_of_the_content(tmp_path: Path) -> None:
    arrays = arrays_of(100)
    write(tmp_path / "ours.hdf5", arrays)
    with h5py.File(tmp_path / "theirs.hdf5", "w") as stream:
        for name, array in arrays.items():
            stream.create_dataset(name, data=array.astype("i8"))
    digests = {content_digest(read_shard(tmp_path / name)) for name in ("ours.hdf5", "theirs.hdf5")}
    assert digests == {content_digest(arrays)}
    arrays["input_ids"][5, 5] += 1
    assert content_digest(arrays) not in digests


def test_an_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> object:
        yield from blocks_of(arrays_of(2048))
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        making.write(tmp_path / "shard.hdf5", failing(), 4096, 16, 3, "{}")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2048 rows were given"):
        making.write(tmp_path / "shard.hdf5", blocks_of(arrays_of(2048)), 4096, 16, 3, "{}")
    assert list(tmp_path.iterdir()) == []


def test_shards_that_are_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "shard.hdf5"
    with pytest.raises(UserError, match="does not exist"):
        read_shard(path)
    write(path, arrays_of(100))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="no whole shard"):
        read_shard(path)
    path.write_bytes(data)
    with h5py.File(path, "a") as stream:
        del stream.attrs["complete"]
    with pytest.raises(UserError, match="writing was interrupted"):
        read_shard(path)
    path.write_bytes(b"not hdf5")
    with pytest.raises(UserError, match="no whole shard"):
        read_shard(path)


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "shard.hdf5"
    write(path, arrays_of(100))
    data = bytearray(path.read_bytes())
    with h5py.File(path) as stream:
        place = stream["input_ids"].id.get_chunk_info(0)
    data[place.byte_offset + place.size // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(UserError, match="no whole shard"):
        read_shard(path)


def test_other_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "shard.hdf5"
    arrays = arrays_of(10)
    with h5py.File(path, "w") as stream:
        for name in list(arrays)[1:]:
            stream.create_dataset(name, data=arrays[name])
    with pytest.raises(UserError, match="lacks input_ids"):
        read_shard(path)
    with h5py.File(path, "a") as stream:
        stream.create_dataset("input_ids", data=arrays["input_ids"][:9])
    with pytest.raises(UserError, match="has the shape"):
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
