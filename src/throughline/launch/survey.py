"""What a node has, and whether it is fit for a run just now, as one line of JSON; it runs there.

    python -m throughline.launch.survey QUESTION        (JSON: framework, gpus, seen, record, ranks, threads, strict)

`gpus`: whether to look for any; `seen`: a file that every node has to see; the rest is what `preflight.look` takes.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from throughline.files import UserError
from throughline.launch import machine, preflight
from throughline.observe import environment

PACKAGES = ("torch", "transformers", "numpy", "h5py", "horovod", "mxnet", "gluonnlp")
SEEN_WITHIN_S = 10.0
"""How long a shared file system may take to show a file."""


def software() -> dict[str, str | None]:
    """Versions of all that decides what is measured; `throughline` is a digest of its workers' sources."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return {**found, "throughline": digest.hexdigest()[:12]}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """What `nodes.survey` judges. `warnings` and `refused` are those of `preflight.look` on this node."""
    others, sees = preflight.Others(), _sees(Path(asked["seen"]))
    cpu = machine.processor()
    found = {
        "node": int(os.environ.get("SLURM_NODEID", "0")),
        "sees_files": sees,
        "software": software(),
        "gpus": machine.gpus(asked["framework"], sys.executable, os.environ) if asked["gpus"] else machine.NO_GPUS,
        "cpu": cpu,
        "environment": environment.describe(),
        "warnings": [],
        "refused": None,
    }
    if sees:
        record = Path(asked["record"])
        earlier = preflight.siblings(record)
        try:
            found["warnings"] = preflight.look(
                record, others, asked["ranks"], asked["threads"], cpu["count"], earlier, asked["strict"]
            )
        except UserError as error:
            found["refused"] = {"what": error.what, "why": error.why, "next_step": error.next_step}
    return found


def _sees(path: Path) -> bool:
    deadline = time.monotonic() + SEEN_WITHIN_S
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))))
