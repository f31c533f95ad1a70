"""The sampler of an agent's node: what it says of the GPUs, and why there are no figures of the node if it fails.

A run goes on without a sampler. Its record then says which nodes its figures do not cover. Standard library only: the
agents import this module in the framework's environment.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable

from throughline import files, messages
from throughline.messages import Ready

PATIENCE_S = 5.0
"""How long the sampler may take to write its samples."""
READY_S = 60.0
"""How long the sampler may take to check the GPUs. A driver that was not loaded takes seconds."""


class NodeSampler:
    """The sampler's process, and the reason if it has failed.

    checks: the sampler checks GPUs before the run; tell: gets the reason, once.
    """

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], checks: bool, tell: Callable[[str], None]) -> None:
        self.checks, self.tell = checks, tell
        self.ready: Ready | None = None
        self.failed: str | None = None
        self._said = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_late = False
        try:
            self._process = start()
        except OSError as error:
            self._fail(f"its sampler could not start ({error.strerror})")

    def hear(self, line: str) -> bool:
        """Take a line of the sampler's output. Return True if it is a message, which does not belong into the log."""
        if not line.startswith(messages.MARK):
            self._said = line.strip() or self._said
            return False
        message = messages.heard(line)
        self.ready = message if isinstance(message, Ready) else None
        return True

    def is_awaited(self) -> bool:
        """True until the sampler has checked the GPUs, or has failed."""
        return self.checks and self.ready is None and self.failed is None

    def faults(self, strict: bool) -> list[str]:
        """Return the faults of this node's GPUs. With `strict`, it is a fault if they could not be checked."""
        if self.ready or not self.checks:
            return self.ready.faults if self.ready else []
        why = self.failed or f"the sampler did not answer within {READY_S:g} s"
        return [f"they could not be checked: {why}"] if strict else []

    def look(self) -> None:
        """Tell it if the sampler has ended by itself. Its output has to be read before."""
        if self._process and self._process.poll() is not None:
            self._fail(f"its sampler ended early with {self._status()}")

    def end(self) -> None:
        """Let the sampler write its samples and end. The agent kills it if that takes too long."""
        if self._process and self._process.stdin and self.failed is None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._is_late = True

    def settle(self) -> None:
        """Tell it if the sampler, which has ended now, did not write its samples."""
        if self._is_late:
            self._fail(f"its sampler did not write its samples within {PATIENCE_S:g} s")
        elif self._process and self._process.poll():
            self._fail(f"its sampler ended with {self._status()}")

    def _status(self) -> str:
        status = self._process.returncode if self._process else 0
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"{how} ({files.scrub(self._said)})" if self._said else how

    def _fail(self, reason: str) -> None:
        if self.failed is None:
            unchecked = self.checks and self.ready is None
            self.failed = reason + ("; the GPUs of this node were not checked before the run" if unchecked else "")
            self.tell(self.failed)
