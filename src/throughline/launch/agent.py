"""The agent: the process that starts a node's ranks, reports their progress and their ends, and leaves nothing behind.

    python -m throughline.launch.agent WORK/job.json NODE        (NODE `slurm`: the number is that of srun)

The agent starts every rank of its node, or it starts the framework's own launcher (a starter), which starts the ranks.
When a rank fails, the agent ends the others. Its input has the messages of the launcher and is its lifeline: when the
input ends, the agent ends all ranks of its node immediately, so nobody has to reach this node to end them. Its output
has messages for the launcher and the node's part of the log. The agent marks each line of the log with its rank, and
scrubs it here, where the node's name is known. An agent runs on every node in the framework's own environment, so it
imports only the standard library.
"""

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from throughline import files, frameworks, messages, processes, temporary
from throughline.frameworks.starters import WORKER, Starter
from throughline.launch import agent_commands
from throughline.messages import Alive, Beat, Ended, Order, Ready, Refusal, Reserved, Stacks, Standing, Start
from throughline.rank import heartbeat, ranks
from throughline.spec import RunSpec

EVERY_S = 1.0
"""How often the agent reports the progress of the ranks."""
PATIENCE_S = 5.0
"""How long the sampler may take to write its samples."""
TELEMETRY = "[telemetry] "
READY_S = 60.0
"""How long the sampler may take to check the GPUs. A driver that was not loaded takes seconds."""


class Agent:
    def __init__(self, path: Path, node: int) -> None:
        self.path, self.work, self.node = path, path.parent, node
        self.order = messages.read(Order, path)
        for name in ranks.NAMES:  # this process is no rank, whatever started it
            os.environ.pop(name, None)
        os.environ.update(self.order.variables)
        if self.order.reach == "simulated" and self.order.kind == "cuda":
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(agent_commands.share(self.order, node))
        self.held = contextlib.ExitStack()
        self.folder = self.held.enter_context(temporary.folder(None if self.order.shared else self.work))
        self.ranks = self.order.ranks_of(node)
        self.watched = selectors.DefaultSelector()
        self.partial: dict[int, bytes] = {}
        self.asked = b""
        self.addresses: list[str] = []
        self.children: dict[int | None, subprocess.Popen[bytes]] = {}
        self.ended = set[int | None]()
        self.awaited = set[int]()
        self.seen: dict[int, Beat] = {}
        self.ready: Ready | None = None
        self.failed = self.cut_off = self.over = False

    def run(self) -> int:
        """Run this node's ranks to their end, with no process left over. Return the exit status: 1 after a failure."""
        processes.adopt_orphans()
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watched.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
        self.watched.register(0, selectors.EVENT_READ, self._obey)
        sampler = self._start_sampler()
        if sampler and self.order.kind == "cuda" and (faults := self._faults(sampler)):
            _tell(Refusal(self.node, faults))
            _end_all()
            return 1
        spec = frameworks.specification(self.order.spec)
        if starter := frameworks.of(spec.framework).starter:
            self._start_starter(starter, spec)
        else:
            self._start_ranks()
        last = 0.0
        while self._are_running() and not self.cut_off:
            if self.awaited:
                self._find_processes()
            self._wait(0.1 if self.awaited else EVERY_S)
            if time.monotonic() - last >= EVERY_S:
                last = time.monotonic()
                self._tell_where()
        self._wait(0.0)
        self._tell_where()
        self.over = True
        for child in self.children.values():
            child.kill()
        if sampler and sampler.stdin and not self.cut_off:
            sampler.stdin.close()  # the sampler now writes its samples; if it does not end, we kill it below
            with contextlib.suppress(subprocess.TimeoutExpired):
                sampler.wait(PATIENCE_S)
        _end_all()
        while self._wait(0.0):
            pass
        self._tell_where()
        return int(self.failed)

    def close(self) -> None:
        self.held.close()
        if self.cut_off and not self.order.shared:  # if the launcher has ended, nobody else removes its folder
            shutil.rmtree(self.work, ignore_errors=True)

    def _start_ranks(self) -> None:
        """Start this node's ranks when the launcher says that all nodes are ready.

        The agent keeps the ports of its ranks until it ends, so that no other process gets a port before a rank
        listens on it.
        """
        self.ports = [agent_commands.reserved_port() for _ in self.ranks]
        _tell(Reserved(self.node, [port.getsockname()[1] for port in self.ports]))
        while not self.addresses and not self.cut_off:
            self._wait(EVERY_S)
            self._tell_where()
        for local_rank, rank in enumerate(self.ranks if self.addresses else ()):
            self.children[rank] = self._start(
                processes.module(self.order.python, WORKER, str(self.path)),
                f"[rank {rank}] ",
                subprocess.DEVNULL,
                {ranks.NODE_FOLDER: str(self.folder), **ranks.variables(rank, local_rank, self.addresses)},
            )

    def _start_starter(self, starter: Starter, spec: RunSpec) -> None:
        """Start the framework's own launcher.

        Its ranks are no children of this process. So each rank writes its output to a named pipe, and the agent looks
        for its process.
        """
        self.awaited = set(self.ranks)
        for rank in self.ranks:
            pipe = self.folder / f"rank_{rank}.out"
            os.mkfifo(pipe)
            self._pass_on(os.open(pipe, os.O_RDWR), f"[rank {rank}] ")
        command = starter.command(spec, self.order, str(self.path), str(self.folder))
        self.children[None] = self._start(command, "", subprocess.DEVNULL, {ranks.NODE_FOLDER: str(self.folder)})

    def _are_running(self) -> bool:
        """True if we have to wait for ranks. Reports the exit status of each child that has ended."""
        for rank, child in self.children.items():
            if rank in self.ended or child.poll() is None:
                continue
            self.ended.add(rank)
            self.failed = self.failed or child.returncode != 0
            if rank is not None:
                self._tell_where()
                _tell(Ended(rank, child.returncode))
        return len(self.ended) < len(self.children) and not self.failed

    def _start(self, command: list[str], mark: str, stdin: int, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a process that ends with this one, and pass its output on."""
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_tied,
        )
        assert process.stdout is not None
        self._pass_on(process.stdout.fileno(), mark)
        return process

    def _start_sampler(self) -> subprocess.Popen[bytes] | None:
        """Start the node's sampler in the workflow's own environment. Return None if telemetry is off."""
        if not self.order.telemetry:
            return None
        words = (str(self.path), str(self.node), str(self.folder))
        command = processes.module(self.order.beside, "throughline.observe.telemetry", *words)
        return self._start(command, TELEMETRY, subprocess.PIPE, {})

    def _faults(self, sampler: subprocess.Popen[bytes]) -> list[str]:
        """Return the faults that the sampler has found in this node's GPUs; none if it does not answer in time."""
        deadline = time.monotonic() + READY_S
        while self.ready is None and sampler.poll() is None and time.monotonic() < deadline and not self.cut_off:
            self._wait(EVERY_S)
            self._tell_where()
        return self.ready.faults if self.ready else []

    def _stop(self, *_: Any) -> None:
        self.cut_off = True

    def _obey(self) -> None:
        text = os.read(0, 1 << 16)
        if not text:
            self.watched.unregister(0)
            self.cut_off = True
        *lines, self.asked = (self.asked + text).split(b"\n")
        for line in lines:
            match messages.heard(line.decode()):
                case Start(addresses):
                    self.addresses = addresses
                case Stacks():
                    for pid in filter(_is_worker, processes.descendants(os.getpid())):
                        os.kill(pid, signal.SIGUSR1)

    def _wait(self, seconds: float) -> bool:
        """Handle the events of the next `seconds`. Return True if there were any."""
        events = self.watched.select(seconds)
        for key, _ in events:
            key.data()
        return bool(events)

    def _pass_on(self, descriptor: int, mark: str) -> None:
        """Pass on every line that arrives at `descriptor`. Messages of the sampler are for the agent itself."""
        os.set_blocking(descriptor, False)
        self.partial[descriptor] = b""

        def read() -> None:
            text = os.read(descriptor, 1 << 16)
            if not text:
                self.watched.unregister(descriptor)
                text = b"\n" if self.partial[descriptor] else b""
            *lines, self.partial[descriptor] = (self.partial[descriptor] + text).split(b"\n")
            for line in (raw.decode("utf-8", "replace") for raw in lines):
                if mark == TELEMETRY and line.startswith(messages.MARK):
                    message = messages.heard(line)
                    self.ready = message if isinstance(message, Ready) else None
                else:
                    _say(mark + files.scrub(line))

        self.watched.register(descriptor, selectors.EVENT_READ, read)

    def _find_processes(self) -> None:
        """Watch the processes of a starter's ranks. Each rank writes its process id when it starts."""
        for rank in sorted(self.awaited):
            pid = heartbeat.process(self.folder / f"rank_{rank}.beat")
            if pid is None:
                continue
            self.awaited.discard(rank)
            with contextlib.suppress(AttributeError, OSError):  # old versions of Python and Linux lack pidfd_open
                descriptor = os.pidfd_open(pid)
                self.watched.register(descriptor, selectors.EVENT_READ, partial(self._ended, rank, pid, descriptor))

    def _ended(self, rank: int, pid: int, descriptor: int) -> None:
        self.watched.unregister(descriptor)
        os.close(descriptor)
        if not self.over:  # otherwise the agent itself ended the rank
            self._tell_where()
            _tell(Ended(rank, _exit_status(pid)))

    def _tell_where(self) -> None:
        _tell(Alive(self.node, self.over))
        for rank in self.ranks:
            beats = [heartbeat.read(folder / f"rank_{rank}.beat") for folder in (self.folder, self.work)]
            beat = max(beats, key=lambda beat: beat.phase != "start")
            if self.seen.get(rank) != beat:
                self.seen[rank] = beat
                _tell(Standing(rank, beat))


def _tied() -> None:
    """Tie a new process to this one, between fork and exec. The new process ends when this one ends."""
    processes.die_with_parent(os.getppid(), signal.SIGKILL)


def _tell(message: messages.Line) -> None:
    _say(messages.line(message))


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _is_worker(pid: int) -> bool:
    """True if this is a rank that handles the signal for its stacks. A starter or a shell would end at the signal."""
    if WORKER.encode() not in processes.command_line(pid).split(b"\0"):
        return False
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1)


def _exit_status(pid: int) -> int | None:
    """Return the exit status of a zombie, negative for a signal; None if its parent has already waited for it."""
    fields = processes.stat(pid)
    if not fields or fields[0] != "Z":
        return None
    status = int(fields[49])
    return -(status & 0x7F) or status >> 8


def _end_all() -> None:
    """Kill all descendants of this process, however they were started."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and (left := processes.descendants(os.getpid())):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main() -> int:
    path, node = Path(sys.argv[1]), sys.argv[2]
    agent = Agent(path, int(os.environ["SLURM_NODEID"] if node == "slurm" else node))
    try:
        return agent.run()
    finally:
        agent.close()


if __name__ == "__main__":
    sys.exit(main())
