"""first_card.py works completely on PyTorch's CUDA build, with the packages that `make wheels` brings beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import lane
import pytest
import wheels

import clones


def site(folder: Path) -> Path:
    """Return a folder with links to the packages that an image for GPUs lacks, and to scipy, which it has."""
    folder.mkdir()
    for name in (*wheels.closure(), "scipy"):
        for file in metadata.files(name) or ():
            top, place = Path(file).parts[0], Path(str(metadata.distribution(name).locate_file(file)))
            inside = Path(*place.parts[: len(place.parts) - len(Path(file).parts) + 1])
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(inside)
    return folder


@pytest.mark.timeout(1700)
def test_the_ten_minutes_work_on_the_fake_driver(tmp_path: Path) -> None:
    clone, output = tmp_path / "clone", tmp_path / "output"
    clones.checkout(clone)
    lane.believe(clone / "src/throughline")
    given = lane.variables(PYTHONPATH=str(site(tmp_path / "site")), NULL_CUDA_DEVICES="1", NVML_DOUBLE="count=1")
    words = ["--tiny", "--output", str(output), "--seconds", "3000"]
    command = [str(lane.python()), str(clone / "tests/gpu/first_card.py"), *words]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=1600, check=False)
    logs = "\n".join(log.read_text()[-3000:] for log in output.glob("*.log"))
    value = json.loads((output / "first-card.json").read_text())
    rows = {row["name"]: row for part in value["parts"].values() for row in part["rows"]}
    print(json.dumps(value, indent=1), file=sys.stderr)
    assert done.returncode == 0, done.stdout + logs
    # The losses of a device that computes nothing are all equal, and no number is another one's reason.
    wrong = {name: row for name, row in rows.items() if row["status"] not in ("ok", "skipped")}
    assert wrong == {}, logs
    assert set(rows) >= {"bert-base, bf16, compiled and recorded", "resnet50", "gpt2_small", "throughline bench"}
    assert rows["bert-base"]["kernels"]["wall"] == 1 and rows["bert-base"]["memory_gb"]["torch's modules"] > 0
    assert rows["bert_base"]["runs"] == {"ok": 1} and rows["bert_base"]["samples_per_s"]["1n1g"]
    assert sum(name.startswith("test_") for name in rows) > 8
    assert (output / "report.html").exists() and (output / "archive.zip").exists()
