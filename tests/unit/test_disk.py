"""A file is written to the disk and read from it again, never from memory, and nothing of it stays."""

import os
from pathlib import Path

import pytest

from throughline import disk


def test_a_file_is_written_and_read_and_goes_away(tmp_path: Path) -> None:
    written, read = disk.rates(tmp_path, 3 << 20, 0.01)
    assert written and written > 0 and (read or disk.write_and_read(tmp_path, 1 << 20)[1] is None)
    assert not [*tmp_path.iterdir()]


def test_nothing_that_memory_gives_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "drop", lambda paths: False)
    assert disk.rates(tmp_path, 1 << 20, 0.0)[1] is None
    monkeypatch.setattr(disk, "file_system", lambda folder: "tmpfs")
    assert disk.rates(tmp_path, 1 << 20, 0.0) == (None, None)


def test_a_slow_disk_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "LONG_S", 1e-9)
    dropped: list[int] = []
    monkeypatch.setattr(disk, "drop", lambda paths: dropped.extend(path.stat().st_size for path in paths))
    disk.write_and_read(tmp_path, 4 * disk.LEAST)
    assert dropped == [disk.LEAST]


def test_the_file_system_is_that_of_the_longest_mount() -> None:
    assert disk.file_system(Path("/proc/self")) == "proc"


def test_a_dropped_file_is_cold_until_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    if not disk.drop([file]):
        pytest.skip("this file system keeps files in the page cache")
    assert sum(page & 1 for page in disk._pages(descriptor) or b"") <= 12
    file.read_bytes()
    assert sum(page & 1 for page in disk._pages(descriptor) or b"") > 200
    os.close(descriptor)


def test_a_file_that_cannot_leave_memory_is_said_to_be_warm() -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no file system in memory here")
    file = memory / f"throughline-test-{os.getpid()}"
    try:
        file.write_bytes(bytes(1 << 20))
        assert not disk.drop([file])
    finally:
        file.unlink()


def test_an_empty_file_has_no_pages(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert disk.drop([tmp_path / "empty"])
