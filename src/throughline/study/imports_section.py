"""The section `imports`: folders with logs of other programs. The report shows their figures beside our own."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from throughline.spec import canonical
from throughline.study.config_paths import FilePath
from throughline.study.section import Section


class Import(Section):
    logs: FilePath = Field(description="folder with the logs, searched with all folders in it")

    def state(self) -> str:
        """Return 12 hexadecimal digits that change with the names, sizes or times of the files in the folder.

        The import's rule has them as a parameter, so that a changed log is read again.
        """
        return state(Path(self.logs).rglob("*"))


def state(paths: Iterable[Path]) -> str:
    """Return 12 hexadecimal digits that change with the names, sizes or times of the files among these paths."""
    every = (path for path in sorted(paths) if path.is_file())
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in every]
    return hashlib.sha256(canonical(files).encode("utf-8", "surrogateescape")).hexdigest()[:12]
