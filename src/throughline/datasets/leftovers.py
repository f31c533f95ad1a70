"""Remove what `files.atomic` may leave beside its file after a kill -9 or a power cut: a hidden `.partial` file."""

import glob
import os
from pathlib import Path


def remove(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files that killed writers of `path` left. (Snakemake never runs two writers at a time.)"""
    path = Path(path)
    for left in path.parent.glob(f".{glob.escape(path.stem)}.*.partial{glob.escape(path.suffix)}"):
        left.unlink(missing_ok=True)
