"""A machine's devices, which of them a run takes, and whether the machine is fit for a run now. Standard library only.

python -m throughline.launch.machine QUESTION        asks another node (messages.Question, messages.Answer as JSON)
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from throughline import frameworks, messages
from throughline.files import UserError
from throughline.launch import preflight
from throughline.messages import Answer, Device, Fault, Gpus, Question
from throughline.observe import environment
from throughline.processes import wait_until

ACCELERATORS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""Without one of these there is no GPU, and no need to import a framework only to ask it."""
NO_GPUS = Gpus(count=0, name=None, fp16=False)
PACKAGES = ("torch", "transformers", "numpy", "h5py", "horovod", "mxnet", "gluonnlp")
SEEN_WITHIN_S = 10.0
"""How long a shared file system may take to show a file."""


def gpus(framework: str, python: str, variables: Mapping[str, str]) -> Gpus:
    """The GPUs that the framework sees in the worker's environment."""
    if not any(os.access(path, os.F_OK) for path in ACCELERATORS):
        return NO_GPUS
    # The output's last line: nothing that the framework prints is in the way.
    command = [python, "-c", frameworks.of(framework).gpus]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(variables), check=False, timeout=300)
    lines = done.stdout.strip().splitlines()
    return messages.parsed(Gpus, json.loads(lines[-1])) if done.returncode == 0 and lines else NO_GPUS


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
    """What every worker finds in its environment, on whatever node: threads as specified, our code importable."""
    return {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(spec["threads"])),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # devices as NVML, and so nvidia-smi and the telemetry, count them
        "PYTHONPATH": os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


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
    sees_files = wait_until(Path(question.seen).is_file, SEEN_WITHIN_S, every=0.5)
    if sees_files:
        record, ranks = Path(question.record), question.ranks
        earlier = preflight.siblings(record)
        try:
            warnings = preflight.look(record, others, ranks, question.threads, cpu.count, earlier, question.strict)
        except UserError as error:
            refused = Fault(error.what, error.why, error.next_step)
    return Answer(
        node=int(os.environ.get("SLURM_NODEID", "0")),
        sees_files=sees_files,
        software=software(question),
        gpus=gpus(question.framework, sys.executable, os.environ) if question.gpus else NO_GPUS,
        cpu=cpu,
        environment=environment.describe(question.framework, question.model),
        warnings=warnings,
        refused=refused,
    )


if __name__ == "__main__":
    print(messages.text(answer(messages.parsed(Question, json.loads(sys.argv[1])))))
