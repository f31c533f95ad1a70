"""This machine's devices: which kind a run takes, and whether a topology fits."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from throughline import frameworks, messages
from throughline.files import UserError
from throughline.messages import Device, Gpus
from throughline.observe import environment

ACCELERATORS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""Without one of these there is no GPU, and no need to import a framework only to ask it."""

NO_GPUS = Gpus(count=0, name=None, fp16=False)


def gpus(framework: str, python: str, variables: Mapping[str, str]) -> Gpus:
    """The GPUs that the framework sees in the worker's environment."""
    if not any(os.access(path, os.F_OK) for path in ACCELERATORS):
        return NO_GPUS
    # cwd and the output's last line: nothing that the framework prints is in the way.
    ask = [python, "-c", frameworks.of(framework).gpus]
    done = subprocess.run(ask, capture_output=True, text=True, env=dict(variables), check=False, timeout=300)
    lines = done.stdout.strip().splitlines()
    return messages.parsed(Gpus, json.loads(lines[-1])) if done.returncode == 0 and lines else NO_GPUS


def processor() -> Device:
    return Device("cpu", environment.cpu_name(), environment.cpu_cores(), environment.cpu_has_fp16())


def choose(spec: dict[str, Any], seen: Gpus, cpu: Device) -> Device:
    """What `runs.device` auto, cuda or cpu comes to; UserError where there is none."""
    kind = spec["device"]
    if kind == "auto":
        kind = "cuda" if seen.count else "cpu"
    if kind == "cuda":
        if not seen.count:
            raise UserError(
                "runs.device is cuda, but the framework sees no GPU here",
                why=f"the environment of {spec['framework']} finds none (driver, container or a CPU-only build)",
                next_step="set runs.device: auto or cpu, or install the framework's CUDA build",
            )
        return Device("cuda", str(seen.name), seen.count, seen.fp16)
    return cpu


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
    wanted = per_machine * spec["threads"]
    if wanted > device.count:
        warnings.append(
            f"{per_machine} workers x {spec['threads']} threads on {device.count} cores: they share cores, "
            "so the speedup says nothing about scaling"
        )
    if spec["precision"] == "fp16" and device.fp16_native is False:
        warnings.append("this CPU has no fp16 units: fp16 is emulated and gains nothing")
    return warnings


def worker_variables(spec: dict[str, Any], source: Path) -> dict[str, str]:
    """What every worker finds in its environment, on whatever node: threads as specified, our code importable."""
    threads = str(spec["threads"])
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # devices as NVML, and so nvidia-smi and the telemetry, count them
        "PYTHONPATH": os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
