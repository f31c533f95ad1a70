"""Training gets the arrays of a shard exactly as they are in the file, whatever the file's compression."""

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
from throughline.corpus import reading
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


@pytest.mark.parametrize("how", PACKINGS)
def test_every_packing(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shard.hdf5"
    for rows in (1, 64, 500):
        arrays = arrays_of(rows, 48, 7)
        found = reading.read_shard(packed(path, arrays, PACKINGS[how]))
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name
    with h5py.File(path) as stream:
        for first, last in ((0, 500), (0, 64), (63, 65), (100, 333), (499, 600)):
            for name, array in arrays.items():
                assert np.array_equal(reading.rows(stream[name], first, last), array[first:last])
        monkeypatch.setattr(layout, "ROWS_READ", 70)
        counts, digest = verification._read(stream, lambda block, _: Counter(rows=len(block["input_ids"])))
        assert digest == content_digest(arrays) and counts == {"rows": 500}


@pytest.mark.parametrize("kind", [">i4", "i2", "<i8", "u1"])
@pytest.mark.parametrize("how", ["ours", "theirs"])
def test_every_type_also_without_isal(tmp_path: Path, how: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {name: array % 120 for name, array in arrays_of(200).items()}
    path = packed(tmp_path / "shard.hdf5", arrays, PACKINGS[how], kind)
    assert all(np.array_equal(reading.read_shard(path)[name], array) for name, array in arrays.items())
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


def replaced(path: Path, how: str, chunk: bytes) -> Path:
    """Write a shard whose first chunk of input_ids is stored as `chunk`."""
    with h5py.File(packed(path, arrays_of(200), PACKINGS[how]), "a") as stream:
        stream["input_ids"].id.write_direct_chunk((0, 0), chunk)
    return path


SIZE = 64 * 16 * 4


@pytest.mark.parametrize("how", ["ours", "checksums"])
@pytest.mark.parametrize("size", [SIZE - 1, SIZE - 16, 4, SIZE + 1, SIZE + 16, None])
def test_a_chunk_that_is_damaged_or_unpacks_to_another_size(tmp_path: Path, how: str, size: int | None) -> None:
    """HDF5 must never get such a chunk, because it reads as many bytes as a chunk should have."""
    chunk = zlib.compress(bytes(size or SIZE)) + bytes(4 * (how == "checksums"))
    if size is None:
        chunk = chunk[:10] + bytes([chunk[10] ^ 4]) + chunk[11:]
    path = replaced(tmp_path / "shard.hdf5", how, chunk)
    why = "a chunk is damaged" if size is None else "a chunk of /input_ids does not unpack to its 4096 bytes"
    with pytest.raises(OSError, match=why), h5py.File(path) as stream:
        reading.rows(stream["input_ids"], 0, 100)
    with pytest.raises(UserError, match=f"(?s)no whole shard.*{why}"), layout.open_shard(path) as stream:
        verification._read(stream, lambda block, _: Counter())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ours", "theirs", "checksums"])
def test_a_chunk_that_would_fill_the_memory(tmp_path: Path, how: str) -> None:
    """A process that may use only 256 MiB more than it has reads a chunk that unpacks to 512 MiB."""
    path = replaced(tmp_path / "shard.hdf5", how, isal_zlib.compress(bytes(1 << 29), 1) + bytes(4))
    code = (
        "import resource, sys; from pathlib import Path; from throughline.corpus import reading;"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28),) * 2); reading.read_shard(Path(sys.argv[1]))"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert run.returncode == 1 and "does not unpack to its" in run.stderr.splitlines()[-1]


def test_gzip_that_is_packed_again_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "shard.hdf5", arrays_of(200), {**PACKINGS["ours"], "scaleoffset": 0})
    with pytest.raises(OSError, match="input_ids is compressed in another way"):
        reading.read_shard(path)
