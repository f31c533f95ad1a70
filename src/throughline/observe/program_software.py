"""The software of a program of somebody else: the state of its code, and the packages of its Python.

Repeats are pooled only if both are the same. No path and no line of the code enters a record.
"""

import contextlib
import json
import os
import platform
from pathlib import Path

from throughline import files, processes
from throughline.messages import ProgramPlan, Software
from throughline.spec import RunSpec

CODE_BYTES = 64 << 20
"""A larger file that a command names holds data."""
PACKAGES = (
    "import importlib.metadata as m, json, platform; "
    "print(json.dumps([platform.python_version(), {d.metadata['Name']: d.version for d in m.distributions()}]))"
)


def of(spec: RunSpec, plan: ProgramPlan) -> Software:
    """Return the versions of a program: its commit and the digests of what git does not have, and its packages."""
    assert spec.program
    python, packages = _packages(plan.python)
    return Software(python, {spec.framework: code(Path(plan.folder), plan.files, spec.program.command)}, packages, {})


def code(folder: Path, patterns: list[str], command: tuple[str, ...]) -> str:
    """Return the state of a program's code in words: commit, uncommitted changes, and the digest of further files.

    The files that the command names count too, so that a changed script is noticed that git does not have.
    """
    git = "git", "-C", str(folder)
    commit = (processes.output(*git, "rev-parse", "--short=12", "HEAD") or "").strip()
    changes = (processes.output(*git, "diff", "HEAD") or "").strip() if commit else ""
    named = [path for word in command if os.path.isfile(path := folder / word)]
    listed = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    named = [path for path in named if path.stat().st_size <= CODE_BYTES]
    paths = sorted(path for path in {*listed, *named} if path.is_relative_to(folder))
    found = {str(path.relative_to(folder)): files.sha256(path)[:12] for path in paths}
    parts = [
        f"commit {commit}" if commit else "",
        f"changes {files.digest(changes)}" if changes else "",
        f"files {files.digest(json.dumps(found))}" if found else "",
    ]
    return ", ".join(filter(None, parts)) or "unknown: no git checkout, and no files are named"


def _packages(python: str | None) -> tuple[str, dict[str, str]]:
    """Return the version of the program's Python and its packages; without one, that of ours and no packages."""
    with contextlib.suppress(ValueError):
        if python and (told := processes.output(python, "-c", PACKAGES)):
            version, packages = json.loads(told)
            return version, dict(sorted(packages.items()))
    return platform.python_version(), {}
