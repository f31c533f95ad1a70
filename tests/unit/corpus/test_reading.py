"""Training gets the arrays of a shard exactly as they are in the file, whatever the file's compression."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from isal import isal_zlib

from corpus_helpers import content_digest
from throughline.corpus import kernel, reading
from throughline.corpus.shards import layout, verification
from throughline.files import UserError

from .shards.test_layout import arrays_of

PACKINGS: dict[str, dict[str, Any]] = {
    "ours": {"chunks": (64,), "compression": "gzip", "shuffle": True},
    "theirs": {"chunks": True, "compression": "gzip"},
    "no compression": {},
    "chunks alone": {"chunks": (64,)},
    "shuffle alone": {"chunks": (64,), "shuffle": True},
    "lzf": {"chunks": (64,), "compression": "lzf"},
    "checksums": {"chunks": (64,), "compression": "gzip", "fletcher32": True},
}


def packed(path: Path, arrays: dict[str, np.ndarray], how: dict[str, Any], kind: str = "") -> Path:
    with h5py.File(path, "w") as stream:
        for name, array in arrays.items():
            chunks = how.get("chunks")
            if isinstance(chunks, tuple):
                chunks = (min(chunks[0], len(array)), *array.shape[1:])
            stream.create_dataset(name, data=array.astype(kind or array.dtype), **{**how, "chunks": chunks})
    return path


@pytest.mark.parametrize("rows", [1, 64, 500])
@pytest.mark.parametrize("how", PACKINGS)
def test_every_packing(tmp_path: Path, how: str, rows: int) -> None:
    arrays = arrays_of(rows, 48, 7)
    found = reading.read_shard(packed(tmp_path / "shard.hdf5", arrays, PACKINGS[how]))
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name


@pytest.mark.parametrize("how", PACKINGS)
def test_some_rows(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = arrays_of(500, 48, 7)
    with h5py.File(packed(tmp_path / "shard.hdf5", arrays, PACKINGS[how])) as stream:
        for first, last in ((0, 500), (0, 64), (63, 65), (100, 333), (499, 600)):
            for name, array in arrays.items():
                assert np.array_equal(reading.rows(stream[name], first, last), array[first:last])
        monkeypatch.setattr(layout, "ROWS_READ", 70)
        counts, digest = verification._read(stream, lambda block, _: Counter(rows=len(block["input_ids"])))
        assert digest == content_digest(arrays) and counts == {"rows": 500}


@pytest.mark.parametrize("kind", [">i4", "i2", "<i8", "u1"])
@pytest.mark.parametrize("how", ["ours", "theirs"])
def test_every_type(tmp_path: Path, how: str, kind: str) -> None:
    arrays = {name: array % 120 for name, array in arrays_of(200).items()}
    found = reading.read_shard(packed(tmp_path / "shard.hdf5", arrays, PACKINGS[how], kind))
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())


def test_without_isal_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = arrays_of(300)
    path = packed(tmp_path / "shard.hdf5", arrays, PACKINGS["ours"])
    monkeypatch.setitem(sys.modules, "isal", None)
    assert all(np.array_equal(reading.read_shard(path)[name], array) for name, array in arrays.items())


def test_chunks_that_were_never_written_or_not_compressed(tmp_path: Path) -> None:
    arrays = arrays_of(200)
    path = packed(tmp_path / "shard.hdf5", arrays, PACKINGS["ours"])
    with h5py.File(path, "a") as stream:
        del stream["input_ids"]
        ids = stream.create_dataset("input_ids", (200, 16), "i4", chunks=(64, 16), compression="gzip", shuffle=True)
        ids[64:128] = 7
        ids.id.write_direct_chunk((128, 0), np.full((64, 16), 9, "<i4").tobytes(), filter_mask=3)
    found = reading.read_shard(path)["input_ids"]
    assert [found[row, 0] for row in (0, 64, 128, 199)] == [0, 7, 9, 0]


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = packed(tmp_path / "shard.hdf5", arrays_of(200), PACKINGS["ours"])
    content = bytearray(path.read_bytes())
    with h5py.File(path) as stream:
        place = stream["input_ids"].id.get_chunk_info(1)
    content[place.byte_offset + place.size // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(OSError):
        reading.read_shard(path)


def replaced(path: Path, how: dict[str, Any], chunk: bytes) -> dict[str, np.ndarray]:
    """Write a shard whose first chunk of input_ids is stored as `chunk`; return the arrays of the intact shard."""
    arrays = arrays_of(200)
    with h5py.File(packed(path, arrays, how), "a") as stream:
        stream["input_ids"].id.write_direct_chunk((0, 0), chunk)
    return arrays


@pytest.mark.parametrize("how", ["ours", "checksums"])
@pytest.mark.parametrize("lacking", [1, 16, 64 * 16 * 4 - 4, -1, -16])
def test_a_chunk_that_unpacks_to_another_size(tmp_path: Path, how: str, lacking: int) -> None:
    """The C code and HDF5 must never get such a chunk, because they read as many bytes as a chunk should have."""
    path = tmp_path / "shard.hdf5"
    replaced(path, PACKINGS[how], zlib.compress(bytes(64 * 16 * 4 - lacking)) + bytes(4 * (how == "checksums")))
    with h5py.File(path) as stream:
        for compiled in (kernel.load(), None):
            with pytest.raises(OSError, match="does not unpack to its 4096 bytes"):
                reading.rows(stream["input_ids"], 0, 100, compiled)
    with pytest.raises(UserError, match="no whole shard") as caught, layout.open_shard(path) as stream:
        verification._read(stream, lambda block, _: Counter())
    assert "input_ids does not unpack" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ours", "theirs", "checksums"])
def test_a_chunk_that_would_fill_the_memory(tmp_path: Path, how: str) -> None:
    """A process that may use only 256 MiB more than it has reads a chunk that unpacks to 512 MiB."""
    chunk = isal_zlib.compress(bytes(1 << 29), 1) + bytes(4)
    replaced(tmp_path / "shard.hdf5", PACKINGS[how], chunk)
    code = (
        "import resource, sys; from pathlib import Path; from throughline.corpus import reading;"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28),) * 2); reading.read_shard(Path(sys.argv[1]))"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "shard.hdf5"], capture_output=True, text=True)
    assert run.returncode == 1 and "does not unpack to its" in run.stderr.splitlines()[-1]


def test_gzip_that_is_packed_again_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "shard.hdf5", arrays_of(200), {**PACKINGS["ours"], "scaleoffset": 0})
    with pytest.raises(OSError, match="input_ids is compressed in another way"):
        reading.read_shard(path)
