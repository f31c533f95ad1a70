"""Find a machine's devices, and check that the machine is fit for a run now. Standard library only.

The launcher asks another node with this command. The question is JSON (messages.Question), and the last line of output
is the answer (messages.Answer):

    python -m throughline.launch.machine QUESTION
"""

import contextlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from throughline import frameworks, messages
from throughline.files import UserError
from throughline.installation.choose import unused_gpus
from throughline.memory import gib
from throughline.messages import Answer, Device, Fault, Gpus, Question
from throughline.observe import environment
from throughline.observe.other_processes import OtherProcesses, crowded
from throughline.processes import output, wait_until
from throughline.spec import RunSpec, read

DEVICE_FILES = {"cuda": ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")}
"""Device files of a kind of accelerator. If none of them exists there is none, and we need not import a framework to
ask it."""
PROBE_S = 300.0
"""How long a framework may take to say which GPUs it sees."""
NO_GPUS = Gpus(kind=None, count=0, name=None, fp16=False)
WORKER_BYTES = 384 << 20
"""The memory of a rank of any framework, with its libraries loaded, on the smallest model."""
DISK_BYTES = 16 << 20
"""More than enough for a record, its log and its telemetry."""
CONFIRM_S = 1.0
"""How long we look at the processors again before we warn that other processes keep them busy."""
SEEN_WITHIN_S = 10.0
"""How long a shared file system may take to show a new file."""
COMPILERS = ("gcc", "clang")
"""What Triton looks for if the variable CC names nothing."""
INCLUDE = (
    "import sysconfig; scheme = sysconfig.get_default_scheme(); "
    "print(sysconfig.get_paths('posix_prefix' if scheme == 'posix_local' else scheme)['include'])"
)
"""Print the folder in which Triton looks for Python's headers."""


def gpus(framework: str, python: str, variables: Mapping[str, str], device: str = "auto") -> Gpus:
    """Return the accelerators that the framework sees in a rank's environment. Raise UserError if it cannot tell.

    `device` is `runs.device`: we look for the first kind of which the framework sees one, or for this kind only. With
    `auto` it is an error if the framework sees none of the machine's GPUs: a CPU's row would stand beside rows of GPUs.
    """
    for kind, question in frameworks.of(framework).accelerators.items():
        files = DEVICE_FILES.get(kind)
        if device in ("auto", kind) and (files is None or any(os.access(path, os.F_OK) for path in files)):
            seen = _asked(framework, kind, [python, "-c", question], variables)
            if seen.count:
                return seen
    if device == "auto" and "cuda" in frameworks.of(framework).accelerators and (unused := unused_gpus()):
        raise UserError(
            f"{framework} sees no GPU, and this machine has {len(unused.cards)} ({unused.cards[0].name})",
            why=f"its environment is the build for CPUs, or one that does not run with driver {unused.driver}",
            next_step="GPU=auto make frameworks builds it for these GPUs (see make doctor); or set runs.device: cpu",
        )
    return NO_GPUS


def _asked(framework: str, kind: str, command: list[str], variables: Mapping[str, str]) -> Gpus:
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=dict(variables), timeout=PROBE_S)
        # The answer is the last line, because the framework may print other lines first.
        gpus = json.loads(done.stdout.splitlines()[-1] if done.returncode == 0 else "")
        return read(Gpus, {**gpus, "kind": kind})
    except subprocess.TimeoutExpired:
        reason = f"it did not answer within {PROBE_S:.0f} s"
    except (IndexError, TypeError, ValueError):
        no_answer = f"its process ended with status {done.returncode} and no answer"
        reason = [no_answer, *done.stderr.strip().splitlines()][-1]
    raise UserError(
        f"{framework} could not say which GPUs there are",
        why=reason,
        next_step="fix what it names (nvidia-smi shows the driver's state), or set runs.device: cpu",
    )


def processor() -> Device:
    return Device("cpu", environment.cpu_name(), environment.cpu_cores(), environment.cpu_has_fp16())


def check_ready(question: Question, others: OtherProcesses) -> list[str]:
    """Return warnings about this machine just before ranks start on it. Raise UserError if they should not start.

    They should not start with too little memory or disk, nor on a busy machine if the question is strict.
    """
    _check_room(Path(question.record), question.ranks, question.rank_bytes)
    cores, wanted = environment.cpu_cores(), question.ranks * question.threads
    warning = crowded(others.cores(), cores, wanted, "use {}")
    if warning:  # look again, because a short burst of work does not matter
        again = OtherProcesses()
        time.sleep(CONFIRM_S)
        warning = crowded(again.cores(), cores, wanted, "use {}")
    if warning and question.strict:
        raise UserError(
            f"this machine is busy: {warning.partition(':')[0]}",
            why="they would disturb the measurement, and runs.strict is on",
            next_step="end them (see `top`), or set runs.strict: false to measure with a warning",
        )
    return [warning] if warning else []


def _check_room(record: Path, ranks: int, rank_bytes: int) -> None:
    """Raise UserError if the free memory or disk cannot be enough. rank_bytes: see Question."""
    each = max(WORKER_BYTES, rank_bytes)
    known = f"{gib(each)} each, as " + ("the earlier repeats took" if each > WORKER_BYTES else "their libraries take")
    free = environment.free_memory_bytes()
    if free is not None and free < ranks * each:
        raise UserError(
            f"too little memory: {gib(free)} are free here, and {ranks} ranks need {gib(ranks * each)}",
            why=known,
            next_step="end what uses the memory, or choose fewer devices per node or a smaller batch",
        )
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limit = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=each)
    if limit < each:
        raise UserError(
            f"too little memory: a process may have {gib(limit)} (ulimit -v, -d), and a rank needs {gib(each)}",
            why=known,
            next_step="raise the limit (ulimit -v unlimited), or ask the scheduler for more memory",
        )
    for wanted in (record.parent, Path(os.environ.get("TMPDIR") or "/tmp")):
        folder = next(folder for folder in (wanted, *wanted.parents) if folder.is_dir())
        left = shutil.disk_usage(folder).free
        if left < DISK_BYTES:
            raise UserError(
                f"too little disk: {left / 2**20:.1f} MiB are free in {folder}, and a run needs {DISK_BYTES >> 20} MiB",
                why="its record, log and telemetry would not fit",
                next_step="make room, and run snakemake again",
            )


def needs_compiler(spec: RunSpec) -> bool:
    """True if ranks of this run need a C compiler on a node with GPUs."""
    return bool(frameworks.resolved(spec, "cuda").options.compile) and frameworks.of(spec.framework).needs_compiler


def check_compiler(python: str, variables: Mapping[str, str]) -> None:
    """Raise UserError if this machine has no C compiler, or not the headers of this interpreter.

    Triton compiles a small C program at the start of a run, on the node itself.
    """
    path, named = variables.get("PATH", os.defpath), variables.get("CC")
    what = None
    if not any(shutil.which(name, path=path) for name in ([named.split()[0]] if named else COMPILERS)):
        what = f"a C compiler: CC names {named}" if named else "a C compiler: neither gcc nor clang is here"
    elif not (folder := (output(python, "-c", INCLUDE, variables=variables) or "").strip()):
        what = f"to know where the headers of {python} are, and it does not say"
    elif not (headers := Path(folder, "Python.h")).is_file():
        what = f"Python's headers, and {headers} does not exist"
    if what:
        raise UserError(
            f"options.compile needs {what}",
            why="PyTorch compiles for GPUs with Triton, which compiles the start of its kernels in C on every node",
            next_step="install them (Debian: apt install gcc python3-dev; Red Hat: dnf install gcc python3-devel), "
            "or set options.compile: false",
        )


def software(question: Question) -> dict[str, str | None]:
    """Return the versions of all software that affects the measurement.

    The version of `throughline` is a digest of our code that a rank runs.
    """
    versions: dict[str, str | None] = dict.fromkeys(frameworks.packages())
    for name in frameworks.packages():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    code = environment.code(question.framework, question.model)
    return {"python": platform.python_version(), **versions, "throughline": code}


def answer(question: Question) -> Answer:
    """Answer a question: the hardware and software of this node, and the warnings or the fault of a run on it now."""
    others, cpu = OtherProcesses(), processor()
    refused: Fault | None = None
    warnings: list[str] = []
    sees_files = wait_until(Path(question.seen).is_file, SEEN_WITHIN_S, every=0.5)
    seen = NO_GPUS
    try:
        if sees_files:
            warnings = check_ready(question, others)
        seen = gpus(question.framework, sys.executable, os.environ, question.device)
        if question.compiles and seen.kind == "cuda":
            check_compiler(sys.executable, os.environ)
    except UserError as error:
        refused = Fault(error.what, error.why, error.next_step)
    return Answer(
        node=int(os.environ.get("SLURM_NODEID", "0")),
        sees_files=sees_files,
        software=software(question),
        gpus=seen,
        cpu=cpu,
        environment=environment.describe(question.framework, question.model),
        warnings=warnings,
        refused=refused,
    )


if __name__ == "__main__":
    print(messages.text(answer(read(Question, json.loads(sys.argv[1])))))
