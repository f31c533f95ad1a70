"""The archive of logs: every run's log, without names and addresses, and the same bytes each time."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from report_fixture import write_series
from throughline.files import UserError
from throughline.report.analysis import summary
from throughline.report.render import packed_logs


def made(root: Path) -> Path:
    path = root / "bert/bz32_fp32.json"
    summary.write(write_series(root, {"1n1g": [1.0, 1.0], "1n2g": [2.0]}), path, 2)
    return path


def test_every_log_is_packed_without_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROUGHLINE_NODES", "gpu-machine-7")
    path = made(tmp_path)
    for log in tmp_path.rglob("*.log"):
        log.unlink()
    with pytest.raises(UserError, match=r"no run behind .*bz32_fp32\.json has a log"):
        packed_logs.write([path], tmp_path / "bert/logs.zip")
    logs = [path.with_suffix("") / f"torch/{name}.log" for name in ("1n1g/run1", "1n1g/run2")]
    for log in logs:
        log.write_text("rank 0 on gpu-machine-7 listens at 192.168.7.33\n")
    said = packed_logs.write([path], tmp_path / "bert/logs.zip")
    assert "the logs of 2 runs; missing: 1, such as " in said and "1n2g/run1.log" in said
    with zipfile.ZipFile(tmp_path / "bert/logs.zip") as archive:
        assert archive.namelist() == ["bz32_fp32/torch/1n1g/run1.log", "bz32_fp32/torch/1n1g/run2.log"]
        text = archive.read("bz32_fp32/torch/1n1g/run1.log").decode()
    assert text == "rank 0 on node0 listens at ADDRESS\n"
    first = (tmp_path / "bert/logs.zip").read_bytes()
    for log in logs:
        os.utime(log, (1e9, 1e9))
    packed_logs.write([path], tmp_path / "bert/again.zip")
    assert (tmp_path / "bert/again.zip").read_bytes() == first
