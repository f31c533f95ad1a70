"""Whether a file was dropped from the page cache."""

import os
from pathlib import Path

import pytest

from throughline import page_cache


def test_a_dropped_file_is_cold_until_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    if not page_cache.drop([file]):
        pytest.skip("this file system keeps files in the page cache")
    assert sum(page & 1 for page in page_cache._pages(descriptor) or b"") <= 12
    file.read_bytes()
    assert sum(page & 1 for page in page_cache._pages(descriptor) or b"") > 200
    os.close(descriptor)


def test_a_file_that_cannot_leave_memory_is_said_to_be_warm() -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no file system in memory here")
    file = memory / f"throughline-test-{os.getpid()}"
    try:
        file.write_bytes(bytes(1 << 20))
        assert not page_cache.drop([file])
    finally:
        file.unlink()


def test_an_empty_file_has_no_pages(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert page_cache.drop([tmp_path / "empty"])
