"""The output of the console: lines that stay and, on a terminal, one progress bar below them."""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console as Terminal
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

EVERY_S, PLAIN_EVERY_S = 1.0, 60.0
"""How often we draw a bar, and how often we print a line where there is no bar."""


@dataclass(frozen=True)
class Status:
    """The progress of the workflow.

    done: the finished work in words; share: the share of the work that is done, from 0 to 1, None if unknown;
    left: the remaining time in words; detail: what runs now.
    """

    done: str
    share: float | None
    left: str
    detail: str


class Screen:
    """Shows the status, which it requests once a second.

    If stderr is no terminal, it prints plain lines. If `quiet`, it shows only errors.
    """

    def __init__(self, status: Callable[[], Status], quiet: bool) -> None:
        self._status, self._quiet = status, quiet
        self._bar: Progress | None = None
        if not quiet and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            columns = [TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)]
            columns += [TextColumn("{task.fields[left]}", markup=False)]
            rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            columns += [TextColumn("{task.fields[detail]}", style="dim", markup=False, table_column=rest)]
            terminal = Terminal(stderr=True, highlight=False)
            self._bar = Progress(*columns, console=terminal, auto_refresh=False, transient=True, expand=True)
            self._task = self._bar.add_task("", total=1.0, left="", detail="")
        self._guard = threading.RLock()
        self._spoke = time.monotonic()
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def open(self) -> None:
        """Start to show the status."""
        if self._bar:
            self._draw(self._bar)
            self._bar.start()
        if not self._quiet:
            self._clock.start()

    def say(self, text: str, style: str | None = None) -> None:
        """Print one or several lines that stay. Errors have the style `red`."""
        if self._quiet and style != "red":
            return
        with self._guard:
            self._spoke = time.monotonic()
            if self._bar:
                self._bar.console.print(text, style=style, markup=False, soft_wrap=True)
            else:
                print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar. Printed lines stay."""
        self._over.set()
        with self._guard:
            if self._bar:
                self._bar.stop()

    def _tick(self) -> None:
        while not self._over.wait(EVERY_S):
            if self._bar:
                self._draw(self._bar)
            elif time.monotonic() - self._spoke >= PLAIN_EVERY_S:
                status = self._status()
                self.say("; ".join(filter(None, [status.done, status.left, status.detail])))

    def _draw(self, bar: Progress) -> None:
        status = self._status()
        share = status.share or 0.0
        with self._guard:
            if not self._over.is_set():
                bar.update(self._task, description=status.done, completed=share, left=status.left, detail=status.detail)
                bar.refresh()
