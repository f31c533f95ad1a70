"""Hands Snakemake's events to `throughline.console`, which comes with the clone that is run; nothing else is here.

Until the workflow starts Snakemake's own output is shown: errors of the configuration, `--unlock` and `--lint` are
Snakemake's to tell. The same in a dry run, with options that ask for more of it, and where the console breaks.
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
        # Snakemake's package imports the plugins: only now is all of it there.
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
