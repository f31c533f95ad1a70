"""Names of shards, and the errors for data files that are damaged or missing. Standard library only.

A shard is `training_0000` or `test_0000` with an ending. Files of other makers need only hold the word.
"""

import glob
import os
from collections.abc import Mapping
from pathlib import Path

from throughline import files
from throughline.files import UserError, snakemake

SPLITS = ("training", "test")
WORDS = {"train": "training", "training": "training", "val": "test", "validation": "test", "test": "test"}
"""Map the words in names of other people's files and folders to the split."""
CHANGED = "it was changed after it was written, or its writing was interrupted"


def shard_name(split: str, number: int) -> str:
    """Return the name of a shard, without its ending. `number`: counted from 0 within its split."""
    return f"{split}_{number:04d}"


def shard_names(counts: Mapping[str, int]) -> list[str]:
    """Return the names of all shards, from the number of shards of each split."""
    return [shard_name(split, number) for split, count in counts.items() for number in range(count)]


def split_of(name: str) -> str:
    """Return "training" or "test", whichever word is in the file's name. (In NVIDIA's names it can be anywhere.)"""
    for split in SPLITS:
        if split in name:
            return split
    raise UserError(
        f"the shard {name} belongs to no split",
        why="a shard's name has to hold the word `training` or `test`",
        next_step="rename the file",
    )


def fault(path: str | os.PathLike[str], what: str, why: str | None = None) -> UserError:
    """Return the error for a data file with a fault, such as `has a segment without tokens`.

    The error says to make the file again, or to copy it again if it is a link to a file of another maker.
    """
    path = os.fspath(path)
    again = f"make it again: {snakemake('--force', path)}"
    if os.path.islink(path):
        again = f"it is a link to {os.readlink(path)}: copy that file again from its source, then run snakemake"
    return UserError(f"{path} {what}", why=why, next_step=again)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the hidden `.partial` files that writers of `path` left at a kill -9 or a power cut (`files.atomic`).

    Snakemake never runs two writers at a time.
    """
    path = Path(path)
    for partial in path.parent.glob(f".{glob.escape(path.stem)}.*.partial{glob.escape(path.suffix)}"):
        partial.unlink(missing_ok=True)


def installed_file(what: str, package: str, name: str, sha256: str | None = None) -> Path:
    """Return the path of a file of an installed package; UserError if there is none with this SHA-256.

    `what` names in the error the sample that is made of the file.
    """
    from importlib import metadata

    try:
        listed = metadata.distribution(package).files or []
        path = next(Path(str(file.locate())) for file in listed if file.name == name)
        if path.is_file() and sha256 in (None, files.sha256(path)):
            return path
    except (metadata.PackageNotFoundError, StopIteration):
        pass
    raise UserError(
        f"{what} is not on this machine",
        why=f"it is made of {name} of the package {package}, which lacks it, has another one, or is not installed",
        next_step=f"install the {package} pinned in envs/main.txt",
    )
