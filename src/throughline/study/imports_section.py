"""The section `imports`: folders with logs of other programs. The report shows their figures beside our own."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from throughline import spelling
from throughline.files import UserError
from throughline.spec import canonical
from throughline.study.config_paths import FilePath
from throughline.study.section import Section


class Import(Section):
    logs: FilePath = Field(description="folder with the logs, searched with all folders in it")

    def state(self, name: str) -> str:
        """Return 12 hexadecimal digits that change with the names, sizes or times of the files in the folder.

        The import's rule has them as a parameter, so that a changed log is read again. Raise UserError if there is no
        such folder, or no file in it. name: of the import.
        """
        folder = Path(self.logs)
        if not folder.is_dir():
            near = spelling.beside(folder)
            meant = f"did you mean {spelling.listed(near)}? " if near else ""
            raise UserError(
                f"imports.{name}.logs: {folder} is no folder", next_step=f"{meant}name the folder with the logs"
            )
        if not any(path.is_file() for path in folder.rglob("*")):
            raise UserError(f"imports.{name}.logs: {folder} holds no file", next_step="put the logs into it")
        return state(folder.rglob("*"))


def state(paths: Iterable[Path]) -> str:
    """Return 12 hexadecimal digits that change with the names, sizes or times of the files among these paths."""
    every = (path for path in sorted(paths) if path.is_file())
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in every]
    return hashlib.sha256(canonical(files).encode("utf-8", "surrogateescape")).hexdigest()[:12]
