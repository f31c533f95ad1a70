"""The agent: the process that starts a node's ranks, samples the node, and leaves no process behind.

    python -m throughline.launch.agent WORK/launch_plan.json NODE     (NODE `slurm`: the number is that of srun)

`work` is the story of a run on one node: check the GPUs, reserve ports, wait for all nodes, start the ranks, and wait
for their ends. If the framework has its own launcher (a starter), the agent of the first node starts it, and it starts
the ranks of all nodes. Every agent then watches the ranks on its node.

The agent's input has the messages of the launcher and is its lifeline: when the input ends, the agent ends all ranks of
its node. Its output has messages for the launcher and the node's part of the log, which is scrubbed here, where the
node's name is known. The agent runs in the workflow's own environment, because the sampler needs psutil and NVML. On a
node without this environment, it runs in the framework's. So this file imports only the standard library.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from asyncio import Task, create_task
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from throughline import files, frameworks, messages, processes, temporary
from throughline.frameworks.starters import WORKER
from throughline.gpus import visible_devices
from throughline.messages import Beat, GpuFault, LaunchPlan
from throughline.rank import heartbeat, ranks

EVERY_S = 1.0
"""How often the agent reports the progress of the ranks."""
LAST_S = 5.0
"""How long ranks may take to end after their starter has ended, before the agent of their node ends them."""
OUTPUT_S = 5.0
"""How long the agent reads what ended ranks have written. On a busy machine, the last lines take more than a second."""
PROGRAMS_S = 15.0
"""How long the other programs of a node may take to end after the first one has ended."""
CHECK_S, WRITE_S = 60.0, 5.0
"""How long the sampler may take to check the GPUs (a driver that was not loaded takes seconds), and to write its
samples at the end."""


class Agent:
    def __init__(self, path: Path, node: int, folder: Path, plan: LaunchPlan) -> None:
        self.path, self.node, self.folder, self.plan = path, node, folder, plan
        self.ranks = plan.ranks_of(node)
        self.loop = asyncio.get_running_loop()
        self.start: asyncio.Future[messages.Start] = self.loop.create_future()
        self.finish = asyncio.Event()
        self.children: list[asyncio.subprocess.Process] = []
        self.outputs: list[Task[None]] = []
        self.pipes = contextlib.ExitStack()
        self.beats: dict[int, Beat] = {}
        self.checked: asyncio.Future[list[GpuFault] | None] = self.loop.create_future()
        self.closing, self.sampled = threading.Event(), asyncio.Event()
        self.no_telemetry: str | None = None
        self.failed = self.ending = False

    async def run(self) -> tuple[int, bool]:
        """Run this node's ranks to their end, with no process left over.

        Return the exit status (1 after a failure), and whether the launcher has gone or somebody has ended this agent.
        """
        processes.adopt_orphans()
        work = create_task(self.work())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.loop.add_signal_handler(number, work.cancel)
        self.loop.add_reader(0, self.obey, work, bytearray())
        report = create_task(self.report())
        await asyncio.wait([work])
        self.tell_progress()
        self.ending = True
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        if self.plan.telemetry and not work.cancelled():
            await self.end_sampler()
        await self.end_all()
        if self.outputs:  # all writers have ended: read what they have written
            await asyncio.wait(self.outputs, timeout=OUTPUT_S)
        report.cancel()
        self.tell_progress(over=True)
        if not work.cancelled():
            work.result()
        return int(self.failed), work.cancelled()

    async def work(self) -> None:
        """Start the ranks and wait for their ends, or for the first that fails."""
        if self.plan.telemetry:
            threading.Thread(target=self.sample, name="sampler", daemon=True).start()
            if faults := await self.faults():
                _tell(messages.Refusal(self.node, faults))
                self.failed = True
                return
        if self.plan.program:
            await self.start_programs()
            return
        spec = frameworks.specification(self.plan.spec)
        starter = frameworks.of(spec.framework).starter
        if starter is None:
            for end in asyncio.as_completed((await self.spawn_ranks(self.plan.python, WORKER)).values()):
                await end
                if self.failed:
                    break
            return
        ranks.folder_file(self.path.parent, self.node).write_text(str(self.folder))
        watched = [create_task(self.watch(rank)) for rank in self.ranks]
        _tell(messages.NodeReady(self.node, []))
        await self.start
        if self.node == 0:
            command = starter.command(spec, self.plan, str(self.path), str(self.folder))
            await self.wait_for(None, await self.spawn(command, "", {}))
            await asyncio.wait(watched, timeout=0.2)  # their ends may be seen a moment later
        else:
            ends: list[asyncio.Future[Any]] = [asyncio.gather(*watched), create_task(self.finish.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(watched, timeout=LAST_S)

    async def start_programs(self) -> None:
        """Start the runners of a program. The run ends with that of rank 0, which then ends all others."""
        ends = await self.spawn_ranks(self.plan.workflow_python, "throughline.launch.program_runner")
        first: asyncio.Future[Any] = ends.pop(0) if 0 in ends else create_task(self.finish.wait())
        waiting: set[asyncio.Future[Any]] = {first, *ends.values()}
        while not (self.failed or first.done()):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if ends and not self.failed:
            for child in self.children:
                with contextlib.suppress(ProcessLookupError):
                    child.terminate()
            await asyncio.wait(ends.values(), timeout=PROGRAMS_S)

    async def spawn_ranks(self, python: str, module: str) -> dict[int, Task[None]]:
        """Start a process for each rank of this node when all nodes are ready. Map each rank to its end.

        The agent keeps the ports of its ranks until it ends, so that no other process gets a port before a rank
        listens on it.
        """
        ports = [reserved_port() for _ in self.ranks]
        for port in ports:
            self.pipes.enter_context(port)
        _tell(messages.NodeReady(self.node, [port.getsockname()[1] for port in ports]))
        start = await self.start
        ends = {}
        for rank in self.plan.processes_of(self.node):
            variables = {
                ranks.NODE_FOLDER: str(self.folder),
                **ranks.variables(rank, self.ranks.index(rank), start.addresses),
            }
            child = await self.spawn(processes.module(python, module, str(self.path)), f"[rank {rank}] ", variables)
            ends[rank] = create_task(self.wait_for(rank, child))
        return ends

    async def wait_for(self, rank: int | None, child: asyncio.subprocess.Process) -> None:
        """Wait for the end of a rank or of the starter (None)."""
        status = await child.wait()
        self.failed = self.failed or status != 0
        if rank is not None:
            self.tell_end(rank, status)

    async def watch(self, rank: int) -> None:
        """Pass on the output of a starter's rank, which writes it to a named pipe, and report the rank's end."""
        pipe = self.folder / f"rank_{rank}.out"
        os.mkfifo(pipe)
        output = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        self.pipes.enter_context(pipe.open("wb"))  # until all ranks have ended, the output of one may begin
        reader = asyncio.StreamReader()
        await self.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), output)
        self.outputs.append(create_task(_pass_on(reader, f"[rank {rank}] ")))
        while (pid := heartbeat.process_id(self.beat(rank))) is None:
            if self.finish.is_set():
                return
            await asyncio.sleep(0.1)
        try:
            process = os.pidfd_open(pid)
        except OSError:  # the rank has ended already, or Linux is older than 5.3
            while pid in self.rank_processes():
                await asyncio.sleep(0.1)
        else:
            ended = asyncio.Event()
            self.loop.add_reader(process, ended.set)
            try:
                await ended.wait()
            finally:
                self.loop.remove_reader(process)
                os.close(process)
        self.tell_end(rank, _exit_status(pid))

    def rank_processes(self) -> list[int]:
        """Return the process ids of the ranks that run on this node, whoever has started them."""
        path, pids = os.fsencode(self.path), [heartbeat.process_id(self.beat(rank)) for rank in self.ranks]
        return [pid for pid in pids if pid and path in processes.command_line(pid).split(b"\0")]

    def sample(self) -> None:
        """Sample this node until the end, in a thread of its own, because a call may hang in the driver of the GPUs."""
        reason = None
        try:
            from throughline.observe.telemetry import Sampler

            sampler = Sampler(self.plan, self.node, self.folder, self.path.parent)
            self.loop.call_soon_threadsafe(self.checked.set_result, sampler.refused)
            sampler.run(self.closing)
        except BaseException as error:
            for line in traceback.format_exc().splitlines():
                self.loop.call_soon_threadsafe(_say, "[telemetry] " + files.scrub(line))
            reason = f"its sampler failed ({type(error).__name__}: {files.scrub(str(error))})"
        self.loop.call_soon_threadsafe(self.end_sampling, reason)

    def end_sampling(self, reason: str | None) -> None:
        """Note that the sampler has ended. reason: why there is no telemetry of this node, None if there is."""
        self.sampled.set()
        if reason is None or self.no_telemetry:
            return
        if self.plan.kind == "cuda" and not self.checked.done():
            reason += "; the GPUs of this node were not checked before the run"
        if not self.checked.done():
            self.checked.set_result(None)
        self.no_telemetry = reason
        _tell(messages.NoTelemetry(self.node, reason))

    async def faults(self) -> list[GpuFault]:
        """Return the faults of this node's GPUs. With `strict`, it is a fault if they could not be checked."""
        if self.plan.kind != "cuda":
            return []
        await asyncio.wait([self.checked], timeout=CHECK_S)
        found = self.checked.result() if self.checked.done() else None
        if found is not None or not self.plan.strict:
            return found or []
        why = self.no_telemetry or f"the sampler did not answer within {CHECK_S:g} s"
        return [GpuFault(f"they could not be checked: {why}")]

    async def end_sampler(self) -> None:
        """Let the sampler write its samples. If that takes too long, the run goes on without them."""
        self.closing.set()
        await asyncio.wait([create_task(self.sampled.wait())], timeout=WRITE_S)
        if not self.sampled.is_set():
            self.end_sampling(f"its sampler did not write its samples within {WRITE_S:g} s")

    async def spawn(self, command: list[str], mark: str, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
        """Start a process that ends with this one, and pass its output on."""
        child = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(processes.die_with_parent, os.getpid(), signal.SIGKILL),
        )
        assert child.stdout is not None
        self.children.append(child)
        self.outputs.append(create_task(_pass_on(child.stdout, mark)))
        return child

    def obey(self, work: Task[None], rest: bytearray) -> None:
        """Do what the launcher says. `rest` keeps the start of a line whose end has not arrived.

        The input stays a blocking file: behind ssh it is the same socket as the output, which has to block.
        """
        text = os.read(0, 1 << 16)
        if not text:
            self.loop.remove_reader(0)
            work.cancel()
        *lines, last = (rest + text).split(b"\n")
        rest[:] = last
        for line in lines:
            match messages.heard(line.decode()):
                case messages.Start() as start:
                    self.start.set_result(start)
                case messages.Finish():
                    self.finish.set()
                case messages.Stacks():
                    for pid in self.rank_processes():  # they handle the signal since before their first heartbeat
                        os.kill(pid, signal.SIGUSR1)

    async def report(self) -> None:
        while True:
            self.tell_progress()
            await asyncio.sleep(EVERY_S)

    def beat(self, rank: int) -> Path:
        return heartbeat.file(rank, self.folder, self.path.parent)

    def tell_progress(self, over: bool = False) -> None:
        for rank in self.ranks:
            if (beat := heartbeat.read(self.beat(rank))) != self.beats.get(rank):
                self.beats[rank] = beat
                _tell(messages.RankProgress(rank, beat))
        _tell(messages.Alive(self.node, over))

    def tell_end(self, rank: int, status: int | None) -> None:
        if not self.ending:  # otherwise the agent itself has ended the rank
            self.tell_progress()
            _tell(messages.RankEnded(rank, status))

    async def end_all(self) -> None:
        """Kill all descendants of this process, however they were started, and the ranks of a starter."""
        self.pipes.close()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and (pids := {*processes.descendants(os.getpid()), *self.rank_processes()}):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.02)


def reserved_port() -> socket.socket:
    """Return a socket with a port that the system gives to no other process while the socket is open.

    The process that listens on this port has to set SO_REUSEADDR, as servers usually do.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held


def gpus_of(plan: LaunchPlan, node: int) -> Sequence[str]:
    """Return those GPUs of this machine that belong to the agent of a simulated node."""
    count, visible = plan.devices, visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
    indices = [str(number) for number in range(plan.world)] if visible is None else visible
    return indices[node * count : (node + 1) * count]


async def _pass_on(output: asyncio.StreamReader, mark: str) -> None:
    rest = b""
    while text := await output.read(1 << 16):
        *lines, rest = (rest + text).split(b"\n")
        for line in lines:
            _say(mark + files.scrub(line.decode("utf-8", "replace")))
    if rest:
        _say(mark + files.scrub(rest.decode("utf-8", "replace")))


def _tell(message: messages.Line) -> None:
    _say(messages.line(message))


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the launcher has gone, so the input ends as well
        os.write(1, f"{line}\n".encode())


def _exit_status(pid: int) -> int | None:
    """Return the exit status of a zombie, negative for a signal; None if its parent has already waited for it."""
    fields = processes.stat(pid)
    return os.waitstatus_to_exitcode(int(fields[49])) if fields and fields[0] == "Z" else None


async def _run(path: Path, node: int, plan: LaunchPlan) -> int:
    with temporary.folder(None if plan.distributed else path.parent) as folder:
        status, cut_off = await Agent(path, node, folder, plan).run()
    if cut_off and not plan.distributed:  # if the launcher has ended, nobody else removes its folder
        shutil.rmtree(path.parent, ignore_errors=True)
    return status


def main() -> int:
    path, node = Path(sys.argv[1]), os.environ["SLURM_NODEID"] if sys.argv[2] == "slurm" else sys.argv[2]
    plan = messages.read(LaunchPlan, path)
    if sys.executable != plan.workflow_python and "again" not in sys.argv:
        command = processes.module(plan.workflow_python, "throughline.launch.agent", str(path), node, "again")
        os.execv(command[0], command)
    for name in (*ranks.NAMES, ranks.NODE_FOLDER):  # this process is no rank, whatever started it
        os.environ.pop(name, None)
    os.environ.update(plan.variables)
    if plan.reach == "simulated" and plan.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus_of(plan, int(node)))
    return asyncio.run(_run(path, int(node), plan))


if __name__ == "__main__":
    sys.exit(main())
