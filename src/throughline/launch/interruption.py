"""Who wants a run to end is heard: Ctrl-C, SIGTERM, and the end of whoever started the launcher."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from throughline.processes import Parent, die_with_parent


class Interrupted(Exception):
    """Somebody wants the run to end."""


@contextlib.contextmanager
def interruptible() -> Iterator[Parent]:
    """Ctrl-C, SIGTERM and the end of the parent raise Interrupted in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    parent = Parent()
    if threading.current_thread() is not threading.main_thread():
        yield parent
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    die_with_parent(os.getppid(), signal.SIGTERM)
    try:
        yield parent
    finally:
        die_with_parent(os.getppid(), 0)
        for number, handler in before.items():
            signal.signal(number, handler)
