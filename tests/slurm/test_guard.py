"""A process that is killed leaves no cluster behind, whether it is killed while it starts the cluster or later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from process_helpers import needs
from tests.slurm.conftest import ROOT, missing, until


def left(folder: Path) -> list[str]:
    """Return the cluster's processes and namespaces."""
    tag = dict(line.split("=") for line in (folder / "network").read_text().split())["tag"]
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.splitlines()
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in [*spaces, *processes] if line.startswith(f"{tag}-") or f"{folder}/" in line]


@pytest.mark.parametrize("moment", ["while it starts", "when it runs"])
def test_a_killed_process_leaves_no_cluster(tmp_path: Path, moment: str) -> None:
    reason = missing()
    needs(reason is None, str(reason))
    folder = tmp_path / "cluster"
    code = "import sys, time; from pathlib import Path; from tests.slurm.conftest import Cluster;"
    code += "made = Cluster(Path(sys.argv[1])); print('up', flush=True); time.sleep(900)"
    owner = subprocess.Popen([sys.executable, "-c", code, folder], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        if moment == "while it starts":
            until(lambda: (folder / "run/munged.pid").exists())
        else:
            assert owner.stdout.readline()
        until(lambda: bool(left(folder)))
    finally:
        owner.kill()
        owner.wait()
    until(lambda: not left(folder), 120)
