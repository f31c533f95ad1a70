"""Where the relative paths of a configuration lead.

A path leads into the working directory. If nothing is there, it leads into the folder of the workflow, which may be
another one (`snakemake --directory`): so presets find the files that come with the workflow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from throughline import files
from throughline.study.section import Text


@dataclass
class ConfigPaths:
    """The folder of the workflow, and which relative paths of a configuration lead there.

    taken: path in the configuration -> path in the workflow's folder. missing: the paths that lead to nothing.
    """

    workflow: Path
    taken: dict[str, str] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)

    def find(self, path: str) -> str:
        """Return the path if it exists here, otherwise that of the workflow's file, otherwise the path as it is."""
        if os.path.isabs(path) or os.path.exists(path) or self.workflow == Path.cwd():
            return path
        if not (self.workflow / path).exists():
            self.missing[path] = None
            return path
        self.taken[path] = files.from_here(self.workflow / path)
        return self.taken[path]

    def remarks(self) -> list[str]:
        """Return a line for each path that does not lead into the working directory."""
        used = [
            f"{path} is not in this folder; the workflow's own is used: {file}" for path, file in self.taken.items()
        ]
        return used + self.lost()

    def lost(self) -> list[str]:
        """Return a line for each path that leads to nothing."""
        return [f"{path} is neither in this folder nor in {self.workflow}" for path in self.missing]


def lead(path: str, info: ValidationInfo) -> str:
    """Return where a path of the configuration leads. `~` is the home folder, as in a shell."""
    path = os.path.expanduser(path)
    return info.context.find(path) if isinstance(info.context, ConfigPaths) else path


FilePath = Annotated[Text, AfterValidator(lead)]
"""The path of a file or a folder that the user has, or that comes with the workflow."""
