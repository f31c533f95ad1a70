"""One run at a time on a machine: a lock of the operating system, which ends with its holder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock

from throughline.files import UserError

SAY_EVERY_S = 60.0


def folder() -> Path:
    """THROUGHLINE_LOCKS, or the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("THROUGHLINE_LOCKS") or Path(cache, "throughline"))


@contextlib.contextmanager
def device(target: str, say: Callable[[str], None], given_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold this machine's devices for the record `target`.

    While another process holds them, `say` who does, and wait; leaves with InterruptedError when `given_up()`.
    """
    # A home folder may be shared between machines: each has a lock of its own.
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
    path = _writable(folder()) / f"devices-{machine}.lock"
    holder = path.with_suffix(".json")
    lock = filelock.FileLock(path)
    said = 0.0
    while True:
        try:
            lock.acquire(blocking=False)
            break
        except filelock.Timeout:
            if given_up():
                raise InterruptedError from None
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                say(f"waiting for the devices: {_who(holder)}")
            time.sleep(0.2)
    try:
        since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        holder.write_text(json.dumps({"pid": os.getpid(), "target": target, "since": since}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _writable(wanted: Path) -> Path:
    """`wanted`, or where there is no home to write to, a folder of this user's among the temporary ones."""
    for place in (wanted, Path(tempfile.gettempdir(), f"throughline-{os.getuid()}")):
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    raise UserError(
        f"no folder for the lock on this machine's devices: {wanted} cannot be written",
        next_step="set THROUGHLINE_LOCKS to a folder that can",
    )


def _who(holder: Path) -> str:
    try:
        held: dict[str, Any] = json.loads(holder.read_text())
        return f"process {held['pid']} measures {held['target']} since {held['since']}"
    except (OSError, ValueError, KeyError):
        return "another process holds them"
