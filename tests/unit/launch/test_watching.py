"""Schedule, heartbeat, watchdog, progress, lock and environment of a run."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import training_fixtures
from throughline.launch import lock, machine, request, supervision
from throughline.messages import Beat
from throughline.observe import environment
from throughline.rank import heartbeat


@pytest.mark.parametrize(
    ("framework", "options", "kind", "asked", "limit_s"),
    [
        ("torch", {}, "cuda", None, 300.0),
        ("torch", {"compile": True}, "cpu", None, 1800.0),
        ("torch", {"compile": "auto"}, "cuda", None, 1800.0),
        ("torch", {"compile": "auto"}, "cpu", None, 300.0),
        ("jax", {}, "cpu", None, 1800.0),
        ("jax", {}, "cpu", 5.0, 5.0),
    ],
)
def test_a_framework_that_compiles_has_more_time(
    framework: str, options: dict[str, bool | str], kind: str, asked: float | None, limit_s: float
) -> None:
    spec = training_fixtures.spec(framework=framework, options=options)
    asked_for = request.RunRequest(spec, Path("run1.json"), Path("run1.log"), hang_after_s=asked)
    assert supervision.hang_after_s(asked_for, kind) == limit_s


def test_a_heartbeat_is_seen_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.beat"
    assert heartbeat.read(path) == Beat("start", 0, 0)
    heart = heartbeat.Heart(path)
    heart.phase("training", 100)
    heart.step(41)
    assert heartbeat.read(path) == Beat("training", 41, 100)
    heart.phase("end")
    assert heartbeat.read(path) == Beat("end", 0, 0)
    assert list(heart.durations()) == ["start", "training", "end"]


def test_the_watchdog_names_who_is_behind() -> None:
    dog = supervision.Watchdog(10.0, 0.0)
    assert dog.look([Beat("training", 4, 9), Beat("training", 3, 9)], 5.0) is None
    assert dog.look([Beat("training", 5, 9), Beat("training", 4, 9)], 14.0) is None, "it moved"
    assert dog.look([Beat("training", 5, 9), Beat("training", 4, 9)], 23.9) is None
    words = dog.look([Beat("training", 5, 9), Beat("training", 4, 9)], 24.1)
    assert words == "no progress for 10 s: rank 1 in training, step 4 of 9"


def test_progress_is_one_line() -> None:
    stream = io.StringIO()
    spec = training_fixtures.spec(topology="1n2g")
    line = supervision.Progress(spec, stream)
    line.show([Beat("training", 1, 9)])
    assert stream.getvalue() == "", "not on every look where there is no terminal"
    line.say("812.0 samples/s")
    assert stream.getvalue() == "bert fp32 bz4 torch 1n2g run 1: 812.0 samples/s\n"
    assert line._line(Beat("join", 0, 0), 1.0) == "join"
    line._began = ("training", 10.0, 0)
    assert line._line(Beat("training", 4, 8), 12.0) == "step 4/8, 16 samples/s, 2 s left"


def test_the_lock_lets_one_in_and_names_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))
    texts: list[str] = []
    stop = threading.Event()
    hold = "import sys; from throughline.launch import lock\nwith lock.device('results/a.json', print):\n"
    hold += "  print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert other.stdout is not None and other.stdout.readline() == "held\n"

    def say(text: str) -> None:
        texts.append(text)
        stop.set()

    with pytest.raises(InterruptedError), lock.device("results/b.json", say, stop.is_set):
        pass
    assert f"process {other.pid} measures results/a.json since " in texts[0]
    other.kill()  # the lock ends when its holder ends, for whatever reason
    other.communicate()
    with lock.device("results/b.json", texts.append):
        assert len(texts) == 1


def test_the_environment_says_what_the_machine_has() -> None:
    described = environment.describe("torch", "bert-tiny")
    assert described["cpu_cores"] >= 1 and described["memory_bytes"] > 2**28
    assert described["commit"] is None or len(described["commit"]) >= 40


def test_only_variables_that_change_the_speed_are_kept() -> None:
    given = {"OMP_NUM_THREADS": "1", "HOME": "/home/x", "NCCL_ALGO": "Ring", "NCCL_HOSTID": "n1", "HF_TOKEN": "x"}
    given |= {"NCCL_SOCKET_IFNAME": "eth0", "CUDA_VISIBLE_DEVICES": "0,1", "AWS_SECRET_ACCESS_KEY": "y"}
    kept = environment.variables(given)
    assert list(kept) == ["CUDA_VISIBLE_DEVICES", "NCCL_ALGO", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS"]


def test_processors_without_half_precision_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"flags": "fpu avx512f avx512_bf16", "Features": None}
    monkeypatch.setattr(environment, "_cpuinfo", flags.get)
    assert environment.cpu_has_fp16() is False
    flags["flags"] = "fpu avx512_fp16"
    assert environment.cpu_has_fp16() is True
    flags.update(flags=None, Features="fp asimd fphp asimdhp")
    assert environment.cpu_has_fp16() is True
    flags.update(Features=None)
    assert environment.cpu_has_fp16() is None


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_without_padding_a_gpus_memory_grows_in_place_unless_the_user_decides(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    grows = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert environment.variables(grows) == grows, "a record has it"
    for value, kind, expected in (
        (True, "cuda", grows),
        ("auto", "cuda", grows),
        (False, "cuda", {}),
        (True, "cpu", {}),
    ):
        spec = training_fixtures.spec(options={"remove_padding": value})
        assert machine.allocator(spec, kind) == expected
    monkeypatch.setenv(name, "max_split_size_mb:64")
    assert machine.allocator(training_fixtures.spec(options={"remove_padding": True}), "cuda") == {}


def test_workers_get_the_threads_of_the_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # the variable belongs to this machine, not to another host
    variables = machine.worker_variables(training_fixtures.spec(threads=3))
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "3"
    assert not {"RANK", "CUDA_VISIBLE_DEVICES"} & variables.keys()
    assert (variables["NCCL_IB_HCA"], variables["GLOO_SOCKET_IFNAME"]) == ("mlx5_0", "eth1")
