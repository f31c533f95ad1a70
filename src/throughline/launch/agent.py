"""The agent: the process that starts a node's ranks, reports their progress and their ends, and leaves nothing behind.

    python -m throughline.launch.agent WORK/job.json NODE        (NODE `slurm`: the number is that of srun)

The agent starts every rank of its node. If the framework has its own launcher (a starter), the agent of the first node
starts it, and it starts the ranks of all nodes. The other agents then check and sample their nodes, pass on what their
ranks do, and end with the starter. When a rank fails, the agent ends the others. Its input has the messages of the
launcher and is its lifeline: when the input ends, the agent ends all ranks of its node immediately, so nobody has to
reach this node to end them. Its output has messages for the launcher and the node's part of the log. The agent marks
each line of the log with its rank, and scrubs it here, where the node's name is known. An agent runs on every node in
the framework's own environment, so it imports only the standard library.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from throughline import files, frameworks, messages, processes, temporary
from throughline.frameworks.starters import WORKER, Starter
from throughline.launch import agent_commands
from throughline.launch.agent_sampler import READY_S, NodeSampler
from throughline.messages import (
    Alive,
    Beat,
    Blind,
    Ended,
    Finish,
    Order,
    Refusal,
    Reserved,
    Stacks,
    Standing,
    Start,
)
from throughline.rank import heartbeat, ranks
from throughline.spec import RunSpec

EVERY_S = 1.0
"""How often the agent reports the progress of the ranks."""
LAST_S = 5.0
"""How long ranks may take to end after their starter has ended, before the agent of their node ends them."""
TELEMETRY = "[telemetry] "


class Agent:
    def __init__(self, path: Path, node: int) -> None:
        self.path, self.work, self.node = path, path.parent, node
        self.order = messages.read(Order, path)
        for name in (*ranks.NAMES, ranks.NODE_FOLDER):  # this process is no rank, whatever started it
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
        self.start: Start | None = None
        self.finish_by: float | None = None
        self.children: dict[int | None, subprocess.Popen[bytes]] = {}
        self.ended = set[int | None]()
        self.awaited = set[int]()
        self.found: dict[int, int] = {}
        self.sampler: NodeSampler | None = None
        self.seen: dict[int, Beat] = {}
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
        if self.order.telemetry:
            self._start_sampler()
        if faults := self._faults():
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
                if self.sampler:
                    self.sampler.look()
        self._wait(0.0)
        self._tell_where()
        self.over = True
        for child in self.children.values():
            child.kill()
        if self.sampler and not self.cut_off:
            self.sampler.end()
        _end_all(self._found_ranks)
        while self._wait(0.0):
            pass
        if self.sampler and not self.cut_off:
            self.sampler.settle()
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
        start = self._wait_for_all_nodes([port.getsockname()[1] for port in self.ports])
        if start is None:
            return
        for local_rank, rank in enumerate(self.ranks):
            self.children[rank] = self._start(
                processes.module(self.order.python, WORKER, str(self.path)),
                f"[rank {rank}] ",
                subprocess.DEVNULL,
                {ranks.NODE_FOLDER: str(self.folder), **ranks.variables(rank, local_rank, start.addresses)},
            )

    def _start_starter(self, starter: Starter, spec: RunSpec) -> None:
        """Start the framework's own launcher on the first node, when all nodes are ready.

        Its ranks are no children of this process. So each rank writes its output to a named pipe, and the agent of its
        node looks for its process. The agent names its folder in a file, because the variables of the starter are those
        of the first node.
        """
        self.awaited = set(self.ranks)
        ranks.note(self.work, self.node).write_text(str(self.folder))
        for rank in self.ranks:
            pipe = self.folder / f"rank_{rank}.out"
            os.mkfifo(pipe)
            self._pass_on(os.open(pipe, os.O_RDWR), f"[rank {rank}] ")
        if self._wait_for_all_nodes([]) and self.node == 0:
            command = starter.command(spec, self.order, str(self.path), str(self.folder))
            self.children[None] = self._start(command, "", subprocess.DEVNULL, {})

    def _wait_for_all_nodes(self, ports: list[int]) -> Start | None:
        """Report these ports, and return what the launcher says when all nodes are ready; None if it ends the run."""
        _tell(Reserved(self.node, ports))
        while not self.start and not self.cut_off:
            self._wait(EVERY_S)
            self._tell_where()
        return self.start

    def _are_running(self) -> bool:
        """True if we have to wait for ranks. Reports the exit status of each child that has ended."""
        if not self.children:  # the starter is on the first node
            is_over = self.finish_by is not None and time.monotonic() > self.finish_by
            return not is_over and (bool(self._found_ranks()) or (bool(self.awaited) and self.finish_by is None))
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

    def _start_sampler(self) -> None:
        """Start the node's sampler in the workflow's own environment."""
        words = (str(self.path), str(self.node), str(self.folder))
        command = processes.module(self.order.beside, "throughline.observe.telemetry", *words)
        self.sampler = NodeSampler(
            lambda: self._start(command, TELEMETRY, subprocess.PIPE, {}),
            self.order.kind == "cuda",
            lambda reason: _tell(Blind(self.node, reason)),
        )

    def _faults(self) -> list[str]:
        """Return the faults that the sampler has found in this node's GPUs."""
        if self.sampler is None:
            return []
        deadline = time.monotonic() + READY_S
        while self.sampler.is_awaited() and time.monotonic() < deadline and not self.cut_off:
            self._wait(EVERY_S)
            self._tell_where()
            self.sampler.look()
        return self.sampler.faults(self.order.strict)

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
                case Start() as start:
                    self.start = start
                case Finish():
                    self.finish_by = time.monotonic() + LAST_S
                case Stacks():
                    for pid in filter(_is_worker, {*processes.descendants(os.getpid()), *self._found_ranks()}):
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
                if not (mark == TELEMETRY and self.sampler and self.sampler.hear(line)):
                    _say(mark + files.scrub(line))

        self.watched.register(descriptor, selectors.EVENT_READ, read)

    def _find_processes(self) -> None:
        """Watch the processes of a starter's ranks. Each rank writes its process id when it starts."""
        for rank in sorted(self.awaited):
            pid = heartbeat.process(heartbeat.place(rank, self.folder, self.work))
            if pid is None:
                continue
            self.awaited.discard(rank)
            self.found[rank] = pid
            with contextlib.suppress(AttributeError, OSError):  # old versions of Python and Linux lack pidfd_open
                descriptor = os.pidfd_open(pid)
                self.watched.register(descriptor, selectors.EVENT_READ, partial(self._ended, rank, pid, descriptor))

    def _found_ranks(self) -> list[int]:
        """Return the process ids of those ranks of a starter that run on this node."""
        path = os.fsencode(self.path)
        return [pid for pid in self.found.values() if path in processes.command_line(pid).split(b"\0")]

    def _ended(self, rank: int, pid: int, descriptor: int) -> None:
        self.watched.unregister(descriptor)
        os.close(descriptor)
        if not self.over:  # otherwise the agent itself ended the rank
            self._tell_where()
            _tell(Ended(rank, _exit_status(pid)))

    def _tell_where(self) -> None:
        _tell(Alive(self.node, self.over))
        for rank in self.ranks:
            beat = heartbeat.read(heartbeat.place(rank, self.folder, self.work))
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


def _end_all(others: Callable[[], list[int]] = list) -> None:
    """Kill all descendants of this process, however they were started, and `others`: the ranks of a starter."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and (left := {*processes.descendants(os.getpid()), *others()}):
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
