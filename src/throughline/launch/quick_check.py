"""A quick acceptance of nodes: every node checks itself, all at once, and nobody waits for a node that does not answer.

Each node has a node job of its own: a step of Slurm that this process starts with srun, or a launcher here that reaches
its host through ssh. What is not done in time is ended, and the file of its unfinished node job says so.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from throughline import files, processes, records
from throughline.files import UserError
from throughline.launch import fleet
from throughline.records.acceptance import Broken, Failure, Unfinished, unfinished
from throughline.study.acceptance import Measurement, Plan, visit_text

LIMIT_S, LIMIT_ON_CPU_S = 60.0, 180.0
"""How long the check of a node may take. On a CPU a machine may act as several nodes."""
START_S = 30
"""How long Slurm may take to start the check on a node."""
BUSY = "Unable to allocate resources"
"""What srun says if a node is not free in this time."""
KILL_S = 5.0
SEEN_S = 5.0
"""How long a shared file system may take to show what a node has written."""


def limit_s(kind: str) -> float:
    """Return how long a node with this kind of devices may take."""
    return LIMIT_ON_CPU_S if kind == "cpu" else LIMIT_S


@dataclass(frozen=True)
class NodeCheck:
    """The check of one node. visit: the file of its node job; command: what starts it; limit_s: until it is ended."""

    measurements: Sequence[Measurement]
    visit: Path
    command: Sequence[str]
    limit_s: float

    @property
    def node(self) -> int:
        return self.measurements[0].place.nodes[0]

    def run(self) -> str | None:
        """Run the check to its end, or end it. Return why the node did not answer; None if it has ended well."""
        for path in (self.visit, unfinished(self.visit)):
            path.unlink(missing_ok=True)
        # Within a Slurm job, srun would start the check there.
        kept = (name for name in os.environ if not name.startswith("SLURM_") or name == "SLURM_CONF")
        variables = {name: os.environ[name] for name in kept if name != files.NODES}
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables
            )
            why = None
            try:
                if process.wait(self.limit_s):
                    why = f"exit status {process.returncode}"
            except subprocess.TimeoutExpired:
                _end(process)
                why = f"no answer within {self.limit_s:.0f} s"
            output.seek(0)
            said = files.scrub(output.read().decode("utf-8", "replace"))
        shown = self.visit if why is None else unfinished(self.visit)  # a shared file system may take a while
        if not processes.wait_until(shown.is_file, SEEN_S) and why is None:
            why = "its files do not appear here"
        files.write_text(self.visit.with_name("quick.log"), said)
        return f"{why}: {said.strip().splitlines()[-1]}" if why and said.strip() else why

    def blame(self, why: str) -> None:
        """Say in the file of the unfinished node job that the node did not end its check, if nothing better is known.

        Faults of GPUs are known better. A node that Slurm has not given us may be busy, and is not broken.
        """
        note = unfinished(self.visit)
        begun = Unfinished(schema_=records.SCHEMA, records=[], failed={})
        with contextlib.suppress(UserError):
            begun = records.read_unfinished(note)
        if any(failure.broken for failure in begun.failed.values()):
            return
        told = next((failure.reason for failure in begun.failed.values()), " ".join(why.split()))
        faults = [Broken(node=self.node, device=None, fault=f"has not ended its check: {told}")]
        for measured in self.measurements:
            if measured.record not in begun.records:
                begun.failed[measured.record] = Failure(reason=told, broken=[] if BUSY in told else faults)
        files.write_json(note, begun.model_dump(by_alias=True))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process. One that the system cannot end, because it hangs in a driver, is left alone."""
    for end in (process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_S)
            return


@dataclass(frozen=True)
class Checks:
    """How the nodes of a plan are checked.

    script: the one of a node job; words: its other arguments; srun: options of Slurm, none without Slurm; names: of the
    nodes, by number.
    """

    asked: Plan
    script: Path
    words: Sequence[str] = ()
    srun: Sequence[str] = ()
    names: Mapping[int, str] = field(default_factory=dict, repr=False)

    def run(self, away: Mapping[int, str], say: Callable[[str], None]) -> None:
        """Check all nodes that are not away, and say of each how it ended."""
        job = f"throughline-{secrets.token_hex(4)}"
        visits = {file: visit for file, visit in self.asked.visits.items() if visit[0].place.nodes[0] not in away}
        checks = [self._check(Path(file), visit, job) for file, visit in visits.items()]

        def run(check: NodeCheck) -> None:
            start = time.monotonic()
            why = check.run()
            if why:
                check.blame(why)
            say(f"node {check.node}: {why or 'checked'} ({time.monotonic() - start:.0f} s)")

        side_by_side = self.srun or self.asked.fleet.hosts == "ssh"
        try:
            with ThreadPoolExecutor(len(checks) if side_by_side and checks else 1) as pool:
                list(pool.map(run, checks))
        finally:
            if self.srun:  # what hangs on a node keeps its job
                subprocess.run(["scancel", "--me", "--name", job], capture_output=True, timeout=60, check=False)

    def _check(self, file: Path, visit: Sequence[Measurement], job: str) -> NodeCheck:
        limit = limit_s(self.asked.fleet.kind)
        # A run that hangs is ended by its own launcher, which knows more than that it has not answered.
        words = ["--visit", visit_text(visit), "--output", str(file), "--hang-after-s", f"{limit / 2:.0f}", *self.words]
        command = processes.module(sys.executable, str(self.script), *words)
        if self.srun:
            place = fleet.node_file((self.names[visit[0].place.nodes[0]],))
            minutes = int(limit // 60) + 1
            options = [f"--job-name={job}", f"--nodelist={place}", f"--immediate={START_S}", f"--time={minutes}"]
            command = ["srun", "--nodes=1", "--ntasks=1", *options, *self.srun, *command]
            limit += START_S
        return NodeCheck(visit, file, command, limit)


def srun_options(words: str, partition: str | None, account: str | None, cores: int, memory_mb: int) -> list[str]:
    """Return the options of srun for the check of a node. words: those of a node job."""
    named = [f"--partition={partition}"] * bool(partition) + [f"--account={account}"] * bool(account)
    exports = ["--mpi=none", "--export=ALL", "--quit-on-interrupt", "--quiet"]
    return [*named, f"--cpus-per-task={cores}", f"--mem={memory_mb}M", *words.split(), *exports]
