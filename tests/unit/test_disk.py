"""A file is written to the disk and read from it again, never from memory, and nothing of it stays."""

from pathlib import Path

import pytest

from throughline import disk, page_cache


def test_a_file_is_written_and_read_and_goes_away(tmp_path: Path) -> None:
    written, read = disk.rates(tmp_path, 3 << 20, 0.01)
    assert written and written > 0 and (read or disk.write_and_read(tmp_path, 1 << 20)[1] is None)
    assert not [*tmp_path.iterdir()]


def test_nothing_that_memory_gives_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "drop", lambda paths: False)
    assert disk.rates(tmp_path, 1 << 20, 0.0)[1] is None
    monkeypatch.setattr(disk, "file_system", lambda folder: "tmpfs")
    assert disk.rates(tmp_path, 1 << 20, 0.0) == (None, None)


def test_a_slow_disk_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "LONG_S", 1e-9)
    dropped: list[int] = []
    monkeypatch.setattr(page_cache, "drop", lambda paths: dropped.extend(path.stat().st_size for path in paths))
    disk.write_and_read(tmp_path, 4 * disk.LEAST)
    assert dropped == [disk.LEAST]


def test_the_file_system_is_that_of_the_longest_mount() -> None:
    assert disk.file_system(Path("/proc/self")) == "proc"
