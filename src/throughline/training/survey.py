"""What a host has, as one line of JSON; it runs there, with the standard library only.

python -m throughline.training.survey FRAMEWORK FILE        (a file that every host has to see)
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from throughline.training import environment, machine

PACKAGES = ("torch", "transformers", "numpy", "h5py", "horovod", "mxnet", "gluonnlp")


def software() -> dict[str, str | None]:
    """Versions of all that decides what is measured; `throughline` is a digest of its workers' sources."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return {**found, "throughline": digest.hexdigest()[:12]}


if __name__ == "__main__":
    answer = {
        "sees_files": Path(sys.argv[2]).is_file(),
        "software": software(),
        "gpus": machine.gpus(sys.argv[1], sys.executable, os.environ),
        "cpu": machine.processor(),
        "environment": environment.describe(),
    }
    print(json.dumps(answer))
