"""A machine's devices, which of them a run takes, and whether the machine is fit for a run now. Standard library only.

python -m throughline.launch.machine QUESTION        asks another node (messages.Question, messages.Answer as JSON)
"""

import contextlib
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from throughline import frameworks, messages
from throughline.files import UserError
from throughline.memory import gib
from throughline.messages import Answer, Device, Fault, Gpus, Question
from throughline.observe import environment
from throughline.processes import wait_until

ACCELERATORS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""Without one of these there is no GPU, and no need to import a framework only to ask it."""
PROBE_S = 300.0
"""How long a framework may take to say which GPUs there are."""
NO_GPUS = Gpus(count=0, name=None, fp16=False)
PACKAGES = ("torch", "numpy", "h5py", "horovod", "mxnet", "gluonnlp", "paddlepaddle", "transformers", "accelerate")
NETWORK = re.compile(r"(NCCL_(?!HOSTID)|GLOO_|UCX_|FI_)\w+|LD_LIBRARY_PATH")
"""Variables by which ranks find each other and their libraries, beside those that a record keeps."""
WORKER_BYTES = 384 << 20
"""A rank of any framework with its libraries loaded, on the smallest model."""
DISK_BYTES = 16 << 20
"""A record, its log and its telemetry, with room to spare."""
CONFIRM_S = 1.0
"""How long others have to keep a processor busy."""
SEEN_WITHIN_S = 10.0
"""How long a shared file system may take to show a file."""


def gpus(framework: str, python: str, variables: Mapping[str, str]) -> Gpus:
    """The GPUs that the framework sees in the worker's environment; UserError where it cannot say."""
    if not any(os.access(path, os.F_OK) for path in ACCELERATORS):
        return NO_GPUS
    command = [python, "-c", frameworks.of(framework).gpus]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=dict(variables), check=False, timeout=PROBE_S
        )
        # The output's last line: nothing that the framework prints is in the way.
        return messages.parsed(Gpus, json.loads(done.stdout.splitlines()[-1] if done.returncode == 0 else ""))
    except subprocess.TimeoutExpired:
        said = f"it did not answer within {PROBE_S:.0f} s"
    except (IndexError, ValueError):
        said = [f"its process ended with status {done.returncode} and no answer", *done.stderr.strip().splitlines()][-1]
    raise UserError(
        f"{framework} could not say which GPUs there are",
        why=said,
        next_step="fix what it names (nvidia-smi shows the driver's state), or set runs.device: cpu",
    )


def processor() -> Device:
    return Device("cpu", environment.cpu_name(), environment.cpu_cores(), environment.cpu_has_fp16())


def choose(spec: dict[str, Any], seen: Gpus, cpu: Device) -> Device:
    """What `runs.device` auto, cuda or cpu comes to; UserError where there is none."""
    if spec["device"] == "cpu" or (spec["device"] == "auto" and not seen.count):
        return cpu
    if not seen.count:
        raise UserError(
            "runs.device is cuda, but the framework sees no GPU here",
            why=f"the environment of {spec['framework']} finds none (driver, container or a CPU-only build)",
            next_step="set runs.device: auto or cpu, or install the framework's CUDA build",
        )
    return Device("cuda", str(seen.name), seen.count, seen.fp16)


def fits(spec: dict[str, Any], per_machine: int, device: Device) -> list[str]:
    """Warnings about running so many ranks on a machine; UserError where they cannot be run."""
    if device.kind == "cuda":
        if per_machine > device.count:
            raise UserError(
                f"topology {spec['topology']} needs {per_machine} GPUs a machine, and there are {device.count}",
                why=f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}",
                next_step="choose a smaller topology, or runs.device: cpu",
            )
        return []
    warnings = []
    if per_machine * spec["threads"] > device.count:
        warnings.append(
            f"{per_machine} workers x {spec['threads']} threads on {device.count} cores: they share cores, "
            "so the speedup says nothing about scaling"
        )
    if spec["precision"] == "fp16" and device.fp16_native is False:
        warnings.append("this CPU has no fp16 units: fp16 is emulated and gains nothing")
    return warnings


def worker_variables(spec: dict[str, Any], source: Path) -> dict[str, str]:
    """What every worker finds in its environment, on whatever node: settings of the user's that a record keeps or a
    network needs, threads as specified, our code importable."""
    return {
        **{name: value for name, value in os.environ.items() if _is_handed_on(name)},
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(spec["threads"])),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # devices as NVML, and so nvidia-smi and the telemetry, count them
        "PYTHONPATH": os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
    }


def _is_handed_on(name: str) -> bool:
    """Whether ranks on other machines need this variable; a machine's own devices, and its name, stay its own."""
    decides = environment.VARIABLES.fullmatch(name) and name not in environment.ASSIGNED
    return bool(decides or NETWORK.fullmatch(name))


def look(record: Path, others: environment.Others, ranks: int, threads: int, strict: bool) -> list[str]:
    """Warnings about this machine just before `ranks` start on it; UserError where they should not."""
    _room(record, ranks)
    cores, wanted = environment.cpu_cores(), ranks * threads
    warning = environment.crowded(others.cores(), cores, wanted, "use {}")
    if warning:  # a moment's work is no reason: it has to last
        again = environment.Others()
        time.sleep(CONFIRM_S)
        warning = environment.crowded(again.cores(), cores, wanted, "use {}")
    if warning and strict:
        raise UserError(
            f"this machine is busy: {warning.partition(':')[0]}",
            why="they would disturb the measurement, and runs.strict is on",
            next_step="end them (see `top`), or set runs.strict: false to measure with a warning",
        )
    return [warning] if warning else []


def siblings(record: Path) -> dict[str, dict[str, Any]]:
    """Finished records of the same framework and topology, by name, the oldest first."""
    paths = [path for path in record.parent.glob("run*.json") if path.name != record.name]
    finished = {}
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        try:
            value = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(value, dict) and value.get("status") == "ok" and isinstance(value.get("environment"), dict):
            finished[path.stem] = value
    return finished


def same_surroundings(now: Mapping[str, Any], earlier: Mapping[str, Any], strict: bool) -> list[str]:
    """Warnings where this machine is not as it was for an earlier repeat; UserError with `strict`."""
    if not earlier:
        return []
    name, before = [(name, record["environment"]) for name, record in earlier.items()][-1]
    known = [key for key in environment.DECIDES if key in now and key in before]
    changed = [f"{key} was {before[key]} and is {now[key]}" for key in known if now[key] != before[key]]
    if changed and strict:
        raise UserError(
            f"this machine is not as it was for {name}: {'; '.join(changed)}",
            why="repeats from different environments are never pooled, and runs.strict is on",
            next_step="undo the change, or make the earlier repeats again: the first line of their logs says how",
        )
    return [f"since {name}, {text}: the repeats will not be pooled" for text in changed]


def _room(record: Path, ranks: int) -> None:
    """UserError where memory or disk cannot be enough, also for what earlier repeats took."""
    on_cpu = [value for value in siblings(record).values() if (value.get("device") or {}).get("kind") == "cpu"]
    each = max([WORKER_BYTES, *(value.get("peak_memory_bytes") or 0 for value in on_cpu)])
    known = f"{gib(each)} each, as " + ("the earlier repeats took" if each > WORKER_BYTES else "their libraries take")
    free = _free_memory_bytes()
    if free is not None and free < ranks * each:
        raise UserError(
            f"too little memory: {gib(free)} are free here, and {ranks} ranks need {gib(ranks * each)}",
            why=known,
            next_step="end what uses the memory, or choose fewer devices per node or a smaller batch",
        )
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limit = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=each)
    if limit < each:
        raise UserError(
            f"too little memory: a process may have {gib(limit)} (ulimit -v, -d), and a rank needs {gib(each)}",
            why=known,
            next_step="raise the limit (ulimit -v unlimited), or ask the scheduler for more memory",
        )
    for place in (record.parent, Path(os.environ.get("TMPDIR") or "/tmp")):
        there = next(folder for folder in (place, *place.parents) if folder.is_dir())
        left = shutil.disk_usage(there).free
        if left < DISK_BYTES:
            raise UserError(
                f"too little disk: {left / 2**20:.1f} MiB are free in {there}, and a run needs {DISK_BYTES >> 20} MiB",
                why="its record, log and telemetry would not fit",
                next_step="make room, and run snakemake again",
            )


def _free_memory_bytes() -> int | None:
    """Memory that can be had without swapping, within this process's control group; None where nobody says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, ValueError, StopIteration):
        return None
    with contextlib.suppress(OSError, ValueError):  # no group, or `max`
        group = Path("/sys/fs/cgroup")
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        return min(free, max(0, most - used))
    return free


def software(question: Question) -> dict[str, str | None]:
    """Versions of all that decides what is measured; `throughline` is a digest of what a rank runs of it."""
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    code = environment.code(question.framework, question.model)
    return {"python": platform.python_version(), **versions, "throughline": code}


def answer(question: Question) -> Answer:
    """What this node has, and what marks or refuses a run on it now."""
    others, cpu, refused = environment.Others(), processor(), None
    warnings: list[str] = []
    sees_files, seen = wait_until(Path(question.seen).is_file, SEEN_WITHIN_S, every=0.5), NO_GPUS
    try:
        if sees_files:
            warnings = look(Path(question.record), others, question.ranks, question.threads, question.strict)
        if question.gpus:
            seen = gpus(question.framework, sys.executable, os.environ)
    except UserError as error:
        refused = Fault(error.what, error.why, error.next_step)
    return Answer(
        node=int(os.environ.get("SLURM_NODEID", "0")),
        sees_files=sees_files,
        software=software(question),
        gpus=seen,
        cpu=cpu,
        environment=environment.describe(question.framework, question.model),
        warnings=warnings,
        refused=refused,
    )


if __name__ == "__main__":
    print(messages.text(answer(messages.parsed(Question, json.loads(sys.argv[1])))))
