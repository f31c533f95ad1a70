"""Pass Snakemake's events to `throughline.console` of the clone that runs the workflow. This package does nothing else.

Until the workflow starts, the user sees Snakemake's own output, which reports errors of the configuration and the
results of `--unlock` and `--lint`. The user also sees Snakemake's own output in a dry run, with options that ask for
more of Snakemake's output, and if the console fails.
"""

import sys
from logging import LogRecord
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent


class LogHandler(LogHandlerBase):
    """Snakemake's log handler `throughline`."""

    writes_to_stream, writes_to_file = True, False
    has_filter, has_formatter, needs_rulegraph = True, True, False

    def __post_init__(self) -> None:
        # Snakemake imports its plugins while it is being imported itself. Only now can we import from it.
        from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
        from snakemake.settings.enums import Quietness

        said = self.common_settings
        quiet: Any = said.quiet or set()
        shown = DefaultFilter(quiet, said.debug_dag, said.verbose, said.dryrun, said.printshellcmds)
        own = {"stream": sys.stdout} if said.stdout else {}
        self._own = ColorizingTextHandler(said.nocolor, formatter=DefaultFormatter(quiet), filter=shown, **own)
        self.is_console = not (said.dryrun or said.verbose or said.debug_dag or said.printshellcmds)
        self._quiet = Quietness.ALL in quiet
        self._console: Any = None

    def emit(self, record: LogRecord) -> None:
        try:
            if self.is_console and getattr(record, "event", None) == LogEvent.WORKFLOW_STARTED:
                from throughline.console.console import Console

                self._console = Console(self._quiet)
            (self._console or self._own).handle(record)
        except Exception:
            self._console, self.is_console = None, False
            self.handleError(record)

    def close(self) -> None:
        if self._console:
            self._console.close()
        super().close()
