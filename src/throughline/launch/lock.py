"""Locks: only one run at a time uses a machine's devices, and only one job writes a record.

The lock on the devices is a lock of the operating system, so it ends with the process that holds it.
"""

import contextlib
import json
import os
import platform
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock

from throughline.files import UserError, digest, now, write_text

SAY_EVERY_S = 60.0


@contextlib.contextmanager
def device(
    target: str,
    say: Callable[[str], None],
    given_up: Callable[[], bool] = lambda: False,
    machines: Sequence[str] | None = None,
) -> Iterator[None]:
    """Hold the lock on the devices of this machine, or of `machines`, while we measure the record `target`.

    If another process holds it, wait, and call `say` with a text that names this process. Raise InterruptedError when
    `given_up()` is true.
    """
    # Machines may share a home folder, so each machine has its own lock file.
    digests = [digest(name) for name in machines or [platform.node()]]
    paths = [_folder() / f"devices-{name}.lock" for name in sorted(set(digests))]
    told_at = 0.0
    with contextlib.ExitStack() as held:
        while taken := _take_all(paths, held):
            if given_up():
                raise InterruptedError from None
            if time.monotonic() - told_at > SAY_EVERY_S:
                told_at = time.monotonic()
                say(f"waiting for the devices: {_who(taken.with_suffix('.json'))}")
            time.sleep(0.2)
        for path in paths:
            holder = path.with_suffix(".json")
            held.callback(holder.unlink, missing_ok=True)
            holder.write_text(json.dumps({"pid": os.getpid(), "target": target, "since": now()}))
        yield


def _take_all(paths: Sequence[Path], held: contextlib.ExitStack) -> Path | None:
    """Take all of these locks, which `held` then releases; or take none, and return one that another process holds.

    Nobody keeps one lock while it waits for another one. So two processes never wait for each other.
    """
    with contextlib.ExitStack() as taken:
        for path in paths:
            lock = filelock.FileLock(path)
            try:
                lock.acquire(blocking=False)
            except filelock.Timeout:
                return path
            taken.callback(lock.release)
        held.push(taken.pop_all())
    return None


@contextlib.contextmanager
def record(path: Path, variables: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Make sure that only this Slurm job writes this record. Outside a Slurm job, do nothing.

    Raise UserError if another Slurm job writes the record. This happens after Snakemake was killed: its jobs still run,
    and the next Snakemake does not know of them. Each job first writes a claim, a file of its own, and only then looks
    for the claims of others. So if two jobs start at the same time, at least one sees the other and gives up. A job
    removes only its own claim and the claims of jobs that have ended.
    """
    job = variables.get("SLURM_JOB_ID")
    if job is None:
        yield
        return
    claim = path.with_name(f".{path.stem}.{job}.claim")
    write_text(claim, now())
    try:
        _refuse_other_claims(path, job)
        yield
    finally:
        claim.unlink(missing_ok=True)


def unclaimed(records: Iterable[str]) -> None:
    """Raise UserError if a job in Slurm's queue measures one of these records, which are about to be made."""
    for path in map(Path, records):
        if path.suffix == ".json":
            _refuse_other_claims(path)


def _refuse_other_claims(path: Path, mine: str | None = None) -> None:
    """Raise UserError if a job in Slurm's queue, other than `mine`, claims a record. Remove claims of ended jobs."""
    for claim in sorted(path.parent.glob(f".{path.stem}.*.claim")):
        job = claim.name.split(".")[-2]
        with contextlib.suppress(FileNotFoundError):  # the job of this claim has just ended
            since = claim.read_text()
            if job == mine:
                continue
            if not _is_in_queue(job):
                claim.unlink()
                continue
            raise UserError(
                f"{path} is being measured by Slurm job {job} since {since}",
                why="an earlier Snakemake submitted that job and has ended without it (killed, or its host went down)",
                next_step=f"wait until it has ended, or end it with `scancel {job}`; then run snakemake again",
            )


def _is_in_queue(job: str) -> bool:
    """True if a job waits or runs. Raise UserError if Slurm does not answer."""
    question = ["squeue", "--noheader", "--jobs", job, "--states", "PENDING,RUNNING,SUSPENDED", "--format", "%T"]
    what = "`squeue` does not say whether an earlier job still runs"
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(what, why=type(error).__name__) from None
    if answer.returncode and "Invalid job id" not in answer.stderr:
        raise UserError(what, why=" ".join(answer.stderr.split()))
    return bool(answer.stdout.strip())


def _folder() -> Path:
    """Return the folder for locks: THROUGHLINE_LOCKS, else the user's cache, else one among the temporary folders."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    first = Path(os.environ.get("THROUGHLINE_LOCKS") or Path(cache, "throughline"))
    temporary = Path(tempfile.gettempdir(), f"throughline-{os.getuid()}")
    for folder in (first, temporary):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Everybody may write to the temporary folder: ours has to be no link, and nobody else may write to it.
            status = folder.lstat()
            is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
            if os.access(folder, os.W_OK) and (folder == first or is_private):
                return folder
    raise UserError(
        f"no folder for the lock on this machine's devices: {first} cannot be written",
        why=f"{temporary} cannot be used instead: it is a link, or others may write to it",
        next_step="set THROUGHLINE_LOCKS to a folder that can be written",
    )


def _who(holder: Path) -> str:
    try:
        held: dict[str, Any] = json.loads(holder.read_text())
        return f"process {held['pid']} measures {held['target']} since {held['since']}"
    except (OSError, ValueError, KeyError):
        return "another process holds them"
