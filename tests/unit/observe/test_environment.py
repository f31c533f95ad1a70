"""What a record says about its environment: what its digest covers, and that it contains no host and no path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import sources
from throughline.launch import survey
from throughline.observe import environment, other_processes
from throughline.rank import report
from throughline.study import config, runs

DEVICE = {"kind": "cpu", "name": "a processor", "count": 2, "fp16_native": False}


def surroundings(**changes: Any) -> dict[str, Any]:
    software = {"python": "3.11.7", "framework": {"torch": "2.13.0", "cuda": None}, "packages": {"numpy": "2.4.6"}}
    return {
        **environment.describe("torch", "bert-tiny"),
        **software,
        "gpus": None,
        "variables": {"OMP_NUM_THREADS": "1"},
        **changes,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": "6.0.0"},
        {"framework": {"torch": "2.12.0", "cuda": None}},
        {"packages": {"numpy": "2.4.5"}},
        {"code": "0" * 12},
        {"cpu_quota_cores": 1.5},
        {"variables": {"OMP_NUM_THREADS": "2"}},
        {"gpus": [{"name": "H100", "power_limit_w": 300.0}]},
        {"memory_bytes": 512 << 30},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_decides_a_speed_changes_the_digest(changes: dict[str, Any]) -> None:
    assert environment.digest(surroundings(**changes), DEVICE) != environment.digest(surroundings(), DEVICE)


def test_what_decides_none_does_not() -> None:
    now = surroundings()
    other = surroundings(
        commit="f" * 40, tree_clean=False, memory_bytes=now["memory_bytes"] + 4096,
        variables={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "3"},
    )  # fmt: skip
    assert environment.digest(other, DEVICE) == environment.digest(now, DEVICE)
    assert environment.digest(now, {**DEVICE, "count": 4}) != environment.digest(now, DEVICE)
    assert environment.digest(surroundings(framework=None), DEVICE) is None


def test_whatever_is_not_known_has_a_reason() -> None:
    now = surroundings(commit=None, packages=None)
    why = environment.reasons(now, "cpu")
    assert {key for key, value in now.items() if value is None} <= set(why)
    assert why["framework.cuda"] == why["gpus"] == "the run is on the processor"
    assert "git" in why["commit"]
    cards = surroundings(gpus=[{"name": "H100", "sm_clock_set_mhz": None, "mig": None}])
    why = environment.reasons(cards, "cuda", [{"sm_clock_set_mhz": "NVML: Not Supported"}])
    assert why["gpus.0.sm_clock_set_mhz"] == "NVML: Not Supported" and "do not say" in why["gpus.0.mig"]
    assert "gpus.0.name" not in why


def test_packages_are_the_third_parties_that_are_loaded() -> None:
    def module(version: object) -> types.ModuleType:
        made = types.ModuleType("made")
        made.__dict__["__version__"] = version
        return made

    loaded = {"json": module("2.0.9"), "numpy": module("2.4.6"), "numpy.linalg": module("1"), "odd": module((1, 2))}
    assert report.packages(loaded | {"throughline": module("0.1.0")}) == {"numpy": "2.4.6"}


def test_the_configuration_travels_without_hosts_and_folders(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "corpus: {name: own, dump: [/data/secret/part1.xml, /data/secret/part2.xml], contact: me@example.org}\n"
        "runs: {hosts: [alpha, beta, user@gamma], device: cpu}\n"
        "benchmarks: {one: {model: bert-tiny}, two: {model: bert-mini, hosts: simulated}}\n"
    )
    text = runs.packed(config.load([path]))
    value = runs.unpacked(text, "one__aa")
    assert value is not None and list(value["benchmarks"]) == ["one"]
    assert value["benchmarks"]["one"]["hosts"] == "3 hosts"
    assert value["corpus"]["dump"] == ["part1.xml", "part2.xml"]
    assert not [word for word in ("secret", "alpha", "gamma", "example") if word in json.dumps(value)]
    assert runs.unpacked(text, "three") is None and runs.unpacked(None, "one") is None
    assert runs.unpacked(text, "two")["benchmarks"]["two"]["hosts"] == "simulated"  # type: ignore[index]


def test_others_are_more_than_the_ranks_can_spare() -> None:
    def crowded(used: float | None, wanted: int) -> str | None:
        return other_processes.crowded(used, 4, wanted, "use {}")

    assert crowded(None, 4) is None and crowded(0.2, 4) is None  # unknown; no more load than the system itself makes
    assert crowded(2.0, 2) is None
    assert "use 2.5 of 4 cores, and the ranks need 2" in (crowded(2.5, 2) or "")
    assert "need 4" in (crowded(0.5, 8) or "")


OTHER = """
class WORKLOAD:
    models, described = ("other-model",), {}
"""


@pytest.mark.slow
def test_the_code_of_a_run_is_that_of_its_framework_and_its_workload(tmp_path: Path) -> None:
    """A change in another workload or framework leaves all repeats of this run in one group."""
    copy = tmp_path / "throughline"
    shutil.copytree(sources.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def code(framework: str, model: str) -> str:
        ask = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        ask += f"from throughline.observe import environment as e; print(e.code({framework!r}, {model!r}))"
        return subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout

    def after(path: str, framework: str = "torch", model: str = "bert-tiny") -> str:
        file_path = copy / path
        file_path.parent.mkdir(exist_ok=True)
        with file_path.open("a") as file:
            file.write(OTHER if path.endswith("other/__init__.py") else "# changed\n")
        return code(framework, model)

    first = code("torch", "bert-tiny")
    assert first == after("workloads/other/__init__.py") == after("workloads/other/in_torch.py")
    assert first == after("frameworks/mxnet_horovod/rank.py") == after("workloads/bert/in_mxnet.py")
    assert first == after("launch/launcher.py") == after("report/page.py")
    codes = [first, code("mxnet-horovod", "bert-tiny")]
    ours = ("workloads/bert/__init__.py", "workloads/bert/in_torch.py", "frameworks/torch/rank.py", "rank/worker.py")
    codes += [after(path) for path in (*ours, "corpus/reading.py")]
    assert len(set(codes)) == len(codes)


def test_the_record_says_how_ranks_are_bound_only_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.binding({0: None, 1: None}, {}) is None
    facts = surroundings(binding=None)
    assert "no rank was bound" in environment.reasons(facts, "cpu")["binding"]
    assert "ended before" in environment.reasons({**facts, "framework": None}, "cpu")["binding"]
    first, spread = {"cores": [0], "numa_nodes": [0]}, {"OMP_PROC_BIND": "true", "OMP_NUM_THREADS": "1"}
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: {0, 1})
    for given, who in (
        (({},), "what starts the ranks"), (({}, "numa"), "runs.binding"), ((spread,), "OMP_PROC_BIND"),
    ):  # fmt: skip
        assert environment.binding({0: first, 1: None}, *given) == {"0": {**first, "set_by": who}}
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: {0})
    assert environment.binding({0: first}, spread) == {"0": {**first, "set_by": "who started the workflow"}}


def test_a_rank_that_is_bound_says_to_which_cores() -> None:
    code = "import os; from throughline.rank import report; print(report.bound()); "
    code += "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(report.bound())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    free, bound = run.stdout.splitlines()
    core = min(os.sched_getaffinity(0))
    if os.cpu_count() == len(os.sched_getaffinity(0)):
        assert free == "None"
    if (os.cpu_count() or 1) > 1:
        assert f"'cores': [{core}], 'numa_nodes': " in bound


SPEED = (
    "XLA_FLAGS", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR", "JAX_DEFAULT_MATMUL_PRECISION",
    "TF_XLA_FLAGS", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_MODE", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_CUDNN_USE_AUTOTUNE",
    "TF_ENABLE_ONEDNN_OPTS", "TF_USE_CUBLASLT", "TF_FP16_MATMUL_USE_FP32_COMPUTE", "FLAGS_allocator_strategy",
    "FLAGS_cudnn_exhaustive_search", "FLAGS_fraction_of_gpu_memory_to_use", "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHDYNAMO_DISABLE", "CUDNN_CONV_WSCAP_DBG",
    "HOROVOD_ENABLE_ASYNC_COMPLETION", "HOROVOD_CYCLE_TIME", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
    "HOROVOD_NUM_NCCL_STREAMS", "HOROVOD_CACHE_CAPACITY", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE",
    "NVIDIA_TF32_OVERRIDE", "MXNET_CUDNN_AUTOTUNE_DEFAULT", "NCCL_ALGO",
)  # fmt: skip
NO_SPEED = (
    "PATH", "HOME", "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_WORKER_LOGPATH", "TORCHINDUCTOR_TRITON_PROTON_OUTPUT_DIR",
    "CUDNN_LOGDEST_DBG", "CUDNN_LOGLEVEL_DBG", "CUBLASLT_LOG_FILE", "JAX_COMPILATION_CACHE_DIR",
    "JAX_COORDINATOR_ADDRESS", "TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL", "FLAGS_selected_gpus", "FLAGS_nccl_dir",
    "HOROVOD_AUTOTUNE_LOG", "HOROVOD_HOSTNAME", "HOROVOD_GLOO_IFACE", "HOROVOD_RANK",
)  # fmt: skip


def test_variables_that_change_speed_are_recorded_and_reach_ranks_on_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folders, addresses and logs change no speed."""
    values = {name: f"value {number}" for number, name in enumerate((*SPEED, *NO_SPEED))}
    assert set(environment.variables(values)) == set(SPEED)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    handed_on = survey.worker_variables(training_fixtures.spec(threads=3))
    threads = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert {name for name in values if handed_on.get(name) == values[name]} == set(SPEED) - threads
    assert {handed_on[name] for name in threads} == {"3"}


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, 1.5),
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "50000 100000"}, 0.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("2:cpu,cpuacct:/job\n0::/", {"cpu/job/cpu.cfs_quota_us": "20000", "cpu/job/cpu.cfs_period_us": "100000"}, 0.2),
        ("2:cpuacct:/job\n1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("0::/../other", {"cpu.max": "200000 100000"}, 2.0),
        ("", {}, None),
    ],
)
def test_the_quota_of_the_control_groups(
    tmp_path: Path, groups: str, files: dict[str, str], cores: float | None
) -> None:
    write_groups(tmp_path, groups, files)
    assert environment._cpu_quota_cores(tmp_path) == cores


CACHE = "anon 3\ninactive_file 60\nactive_file 9\n"


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        ("0::/job", {"job/memory.max": "80", "job/memory.current": "79", "job/memory.stat": CACHE}, 61),
        ("0::/job", {"job/memory.max": "80", "job/memory.current": "79"}, 1),
        ("0::/job", {"job/memory.max": "max", "job/memory.current": "79"}, 2048),
        (
            "0::/scope/job_17/step_0",
            {
                "scope/job_17/memory.max": "700", "scope/job_17/memory.current": "300",
                "scope/job_17/step_0/memory.max": "max", "scope/job_17/step_0/memory.current": "300",
            },
            400,
        ),
        (
            "5:cpu:/\n4:memory:/job_17",
            {
                "memory/job_17/memory.limit_in_bytes": "700", "memory/job_17/memory.usage_in_bytes": "500",
                "memory/job_17/memory.stat": "inactive_file 7\ntotal_inactive_file 100",
                "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "500",
            },
            300,
        ),
        ("", {}, 2048),
    ],
)  # fmt: skip
def test_the_free_memory_within_all_control_groups(
    tmp_path: Path, groups: str, files: dict[str, str], free: int
) -> None:
    write_groups(tmp_path, groups, files)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       9 kB\nMemAvailable:       2 kB\n")
    assert environment.free_memory_bytes(tmp_path) == free
    (tmp_path / "proc/meminfo").unlink()
    assert environment.free_memory_bytes(tmp_path) is None


def write_groups(root: Path, groups: str, files: dict[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("flags", "features", "has_fp16"),
    [
        ("fpu avx512f avx512_bf16", None, False),
        ("fpu avx512_fp16", None, True),
        (None, "fp asimd fphp asimdhp", True),
        (None, None, None),
    ],
)
def test_processors_without_half_precision_are_recognized(
    monkeypatch: pytest.MonkeyPatch, flags: str | None, features: str | None, has_fp16: bool | None
) -> None:
    monkeypatch.setattr(environment, "_cpuinfo", {"flags": flags, "Features": features}.get)
    assert environment.cpu_has_fp16() is has_fp16
