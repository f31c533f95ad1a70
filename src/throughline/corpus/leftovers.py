"""What a killed writer leaves beside its file: nothing under the final name, perhaps a hidden `.partial` one.

`files.atomic` removes its temporary file in every case but a kill -9 or a power cut. The next writer of the same file
removes it; Snakemake never runs two writers of one file at a time.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path


def remove(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files that killed writers of `path` left."""
    path = Path(path)
    for left in path.parent.glob(f".{glob.escape(path.stem)}.*.partial{glob.escape(path.suffix)}"):
        left.unlink(missing_ok=True)
