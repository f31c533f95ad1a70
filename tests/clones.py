"""Make fresh clones of this checkout, and call Snakemake in them as a user does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from subprocess import PIPE, STDOUT, CompletedProcess, Popen

ROOT = Path(__file__).parents[1]

SMALL = """
corpus:
  name: little
  parts: 2
  shards: {training: 2, test: 1}
  sequences: {32: 5, 64: 10}
  masking: {dupe_factor: 1}
runs: {device: cpu, repeats: 2, steps: {warmup: 2, timed: 4}}
benchmarks:
  quick: {model: bert-tiny, sequence_length: 32, topologies: [1n1g, 1n2g], batch: {fp32: [4]}}
  other: {model: bert-tiny, sequence_length: 32, topologies: [1n1g], batch: {bf16: [4]}, repeats: 1}
"""

ONE = (
    SMALL.replace("parts: 2", "parts: 1")
    .replace("training: 2, test: 1", "training: 1, test: 0")
    .replace("{32: 5, 64: 10}", "{32: 5}")
)
"""The same with one part and one shard, for tests that do not look at several."""


@dataclass
class Clone:
    """A copy of the tracked files with a small configuration. Its folder's name has characters that a shell splits."""

    path: Path

    def snakemake(self, *arguments: str, before: Sequence[str] = (), **variables: str) -> CompletedProcess[str]:
        """Run `snakemake ...`, with `--configfile small.yaml` unless another one is named; both streams in stdout."""
        process = self.start(*arguments, before=before, **variables)
        said, _ = process.communicate(timeout=900)
        return CompletedProcess(process.args, process.returncode, said)

    def start(self, *arguments: str, before: Sequence[str] = (), **variables: str) -> Popen[str]:
        """Start the same command without waiting for it. `before`: a command that runs Snakemake, such as `nice`."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE")
        } | variables
        own = () if "--configfile" in arguments else ("--configfile", "small.yaml")
        command = [*before, sys.executable, "-m", "snakemake", *arguments, *own]
        return Popen(command, cwd=self.path, env=environment, stdout=PIPE, stderr=STDOUT, text=True)

    @property
    def console(self) -> dict[str, str]:
        """The variables that show this checkout's console instead of Snakemake's own output."""
        return {"THROUGHLINE_CONSOLE": ""}

    def made(self, *arguments: str, **variables: str) -> CompletedProcess[str]:
        """Run Snakemake and check that it succeeds."""
        done = self.snakemake(*arguments, **variables)
        assert done.returncode == 0, done.stdout
        return done

    def files(self, *patterns: str) -> set[str]:
        return {str(path.relative_to(self.path)) for pattern in patterns for path in self.path.glob(pattern)}

    def times(self, *patterns: str) -> dict[str, int]:
        return {name: (self.path / name).stat().st_mtime_ns for name in self.files(*patterns)}


def job_counts(output: str) -> dict[str, int]:
    """Return the table of jobs that Snakemake prints before it starts: rule -> count."""
    table = re.search(r"^job +count\n-+ +-+\n(.*?)\n\n", output, re.DOTALL | re.MULTILINE)
    assert table, output
    rows = (line.split() for line in table[1].splitlines())
    return {name: int(count) for name, count in rows if name != "total"}


def checkout(path: Path) -> None:
    """Copy the checkout to `path`, without what git ignores, but with Python's compiled modules: they save time."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = [name for name in listed.split("\0") if name]
    compiled = [cache_from_source(name) for name in names if name.startswith("src/") and name.endswith(".py")]
    for name in (*names, *compiled):
        if (ROOT / name).is_file():
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)


def copy(path: Path, configuration: str = SMALL) -> Clone:
    """Make a clone at `path`, which does not exist yet."""
    checkout(path)
    (path / "small.yaml").write_text(configuration, encoding="utf-8")
    return Clone(path)
