"""Ask NVIDIA's program nvidia-smi for the GPUs of this machine.

Standard library only, and it imports nothing of ours: `make doctor` uses it in every Python from 3.7 on.
"""

from __future__ import annotations

import subprocess
from typing import NamedTuple

FIELDS = ("name", "memory.total", "driver_version", "compute_cap")


class Row(NamedTuple):
    """One GPU, as nvidia-smi says it. capability: such as `9.0`; "" if an old driver does not know the field."""

    name: str
    memory: str
    driver: str
    capability: str = ""


def rows(program: str = "nvidia-smi") -> list[Row]:
    """Return a row for each GPU, at least one. Raise RuntimeError with what nvidia-smi says if it fails."""
    said = ""
    for fields in (FIELDS, FIELDS[:-1]):  # old drivers do not know the last field
        command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                timeout=60,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(str(error)) from None
        found = [line.split(", ") for line in done.stdout.splitlines() if line.count(", ") == len(fields) - 1]
        if done.returncode == 0 and found:
            return [Row(*values) for values in found]
        said = said or " ".join(done.stdout.split())
    raise RuntimeError(said or "it names no GPU")
