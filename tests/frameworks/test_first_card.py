"""tests/gpu/first_card.py works completely on a CPU. Its figures mean nothing there, but its outcomes do."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from benchmarks import harness

from throughline.archive import check

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests/gpu/first_card.py"


def first_card(folder: Path, *words: str, program: Path = PROGRAM) -> tuple[int, dict[str, Any], str]:
    """Run the program with tiny sizes; return its exit status, its results and its page."""
    command = [sys.executable, str(program), "--tiny", "--device", "cpu", "--output", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    logs = "\n".join(log.read_text()[-2000:] for log in folder.glob("*.log"))
    assert (folder / "first-card.json").exists(), done.stdout + done.stderr + logs
    return done.returncode, json.loads((folder / "first-card.json").read_text()), done.stdout + logs


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the results and of compiled kernels."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path


def rows(folder: Path, *parts: str) -> list[list[dict[str, Any]]]:
    """Run these parts, which have to give all rows that they plan. Return the rows of each."""
    status, value, said = first_card(folder, "--seconds", "3000", "--parts", *parts)
    assert status == 0 and {part["outcome"] for part in value["parts"].values()} == {"finished"}, said
    assert value["compiled_kernels"] == str(folder / "kernels") and not value["compiled_kernels_at_start"]
    for part in value["parts"].values():
        assert [row["name"] for row in part["rows"]] == part["plan"]
        assert all(row["status"] == "ok" for row in part["rows"]), said
    return [value["parts"][part]["rows"] for part in parts]


def test_losses_and_rows(alone: Path) -> None:
    losses, (bert, gpt2, resnet) = rows(alone, "losses", "rows")
    differences = {row["name"]: row["largest_difference"] for row in losses}
    assert differences["bert-base, fp32"] == 0 < differences["bert-base, bf16"] < 1e-2
    assert bert["times_as_long"].keys() == gpt2["times_as_long"].keys() == {"Hugging Face", "torch's modules"}
    assert bert["losses"]["Hugging Face"] == pytest.approx(bert["losses"]["ours"], rel=1e-2)
    assert "PyTorch and torchvision have no resnet-tiny" in resnet["reason"] and resnet["samples_per_s"]["ours"] > 0
    page = (alone / "first-card.md").read_text()
    assert "figures mean nothing" in page and "| bert-base | ok |" in page


def test_the_workflow_to_report_and_archive(alone: Path) -> None:
    blocks, (told,), tests = rows(alone, "workflow", "bench", "tests")
    assert all(row["runs"] == {"ok": 1} and len(row["samples_per_s"]["1n1g"]) == 1 for row in blocks)
    assert any(line.startswith(("train and", "train is", "train-2 ")) for line in told["said"]), told
    assert tests == []
    assert (alone / "report.html").stat().st_size > 10_000
    with zipfile.ZipFile(alone / "archive.zip") as archive:
        assert sum("/run" in name and name.endswith(".json") for name in archive.namelist()) == len(blocks) == 3
    assert not check.check(alone / "archive.zip").differences


HOLDING = """
import json, subprocess, sys, time
part = sys.argv[1]
print(json.dumps({"plan": ["first", "second"]}), flush=True)
print(json.dumps({"name": "first", "status": "ok"}), flush=True)
if part == "rows":
    sys.exit("broken")
if part == "losses":
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"
    child = subprocess.Popen([sys.executable, "-c", deaf])
    open(json.loads(sys.argv[2])["output"] + "/child", "w").write(str(child.pid))
    time.sleep(99)
print(json.dumps({"name": "second", "status": "ok"}), flush=True)
"""


def test_a_part_that_hangs_or_dies_leaves_the_others_their_time(tmp_path: Path) -> None:
    for name in ("first_card.py", "first_card_page.py", "wheels.py"):
        (tmp_path / name).write_text((ROOT / "tests/gpu" / name).read_text().replace("GRACE_S = 5", "GRACE_S = 0.5"))
    (tmp_path / "first_card.py").write_text(
        (tmp_path / "first_card.py").read_text().replace("ROOT = HERE.parents[1]", f"ROOT = Path({str(ROOT)!r})")
    )
    (tmp_path / "first_card_parts.py").write_text(HOLDING)
    status, value, _ = first_card(tmp_path, "--seconds", "25", program=tmp_path / "first_card.py")
    outcomes = {name: part["outcome"] for name, part in value["parts"].items()}
    assert status == 1 and outcomes.pop("losses").startswith("stopped after 2 s")
    assert outcomes.pop("rows") == "ended with status 1: broken"
    assert set(outcomes.values()) == {"finished"}
    assert "| second | not measured | – |" in (tmp_path / "first-card.md").read_text().replace(" |  |", " | – |")
    child = Path("/proc", (tmp_path / "child").read_text())
    until = time.monotonic() + 10
    while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:
        assert time.monotonic() < until, "what a part has started outlives it"
        time.sleep(0.1)


def test_what_finds_no_time_says_so(tmp_path: Path) -> None:
    status, value, _ = first_card(tmp_path, "--seconds", "0")
    assert status == 1 and {part["outcome"] for part in value["parts"].values()} == {"no time"}
    assert (tmp_path / "first-card.md").read_text().count(": no time") == 5


def test_wheels_bring_only_what_this_python_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    wheels = importlib.import_module("wheels")
    needed = wheels.closure()
    assert {"snakemake", "snakemake-interface-common", "pandas", "matplotlib", "h5py", "pydantic-core"} <= needed
    assert not needed & {"torch", "transformers", "numpy", "scipy", "pulp", "gensim", "blingfire"}
    for name in ("numpy-1.0", "No_Such_Thing-1.0"):
        with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name.partition('-')[0]}.py", "x = 1")
    assert wheels.unpack(tmp_path, tmp_path / "site") == ["no-such-thing"]
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["No_Such_Thing.py"]


def test_a_piece_that_another_way_computes_faster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    gpu_pieces = importlib.import_module("gpu_pieces")
    tiny = list(gpu_pieces.pieces(gpu_pieces.TINY, "cpu"))
    assert {one["how"] for one in tiny if one["ms"]} >= {
        "flash (ours)", "math", "in chunks (ours)", "whole scores", "fused (ours)", "over lists (ours)",
    }  # fmt: skip
    assert all(one["reason"] for one in tiny if one["ms"] is None)
    row = gpu_pieces.TINY.attention[3]
    assert row.lengths == [8, 14, 20, 26] and row.flops == 3.5 * 4 * (64 + 196 + 400 + 676) * 2 * 16
    found = [
        {"piece": "attention", "what": "GPT-2", "how": how, "ms": ms}
        for how, ms in (("flash", 1.0), ("cudnn (ours)", 1.2), ("math", None))
    ]
    (named,) = gpu_pieces.slower(found)
    assert named.startswith("attention, GPT-2: flash takes 1.000 ms, cudnn (ours) 1.200 ms")
    assert not list(gpu_pieces.slower([*found[:1], found[1] | {"ms": 1.01}]))


@pytest.mark.parametrize(("count", "low", "high"), [(3, 1, 3), (7, 1, 7), (11, 2, 10), (15, 4, 12)])
def test_between_which_rounds_a_median_lies(count: int, low: int, high: int) -> None:
    ratio = harness.ratio([{"slow": 2.0 * number, "fast": 2.0} for number in range(count, 0, -1)], "slow", "fast")
    assert (ratio.low, ratio.high) == (low, high) and ratio.median == (count + 1) / 2
