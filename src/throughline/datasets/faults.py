"""The errors for a data file that is faulty, not whole or missing. Each says how to make or copy the file again."""

from __future__ import annotations

import os

from throughline.files import UserError, snakemake


def fault(path: str | os.PathLike[str], what: str, why: str | None = None) -> UserError:
    """Return the error for a file with a fault, such as `has a segment without tokens`."""
    return UserError(f"{path} {what}", why=why, next_step=repair(path))


def changed(path: str | os.PathLike[str], what: str) -> UserError:
    """Return the error for a file that is not what our program writes."""
    return fault(path, what, "it was changed after it was written, or its writing was interrupted")


def fault_in_row(path: str | os.PathLike[str], what: str, row: int) -> UserError:
    """Return the error for a shard with a fault that is first found in `row`."""
    return fault(path, what, f"first in row {row} (counted from 0)")


def broken(path: str | os.PathLike[str], why: str, what: str = "shard") -> UserError:
    """Return the error for a file that is no whole shard, or no whole file of another kind (`what`)."""
    return fault(path, f"is no whole {what}", why)


def repair(path: str | os.PathLike[str]) -> str:
    """Return what to do about a faulty file: make it again, or copy it again if another program made it."""
    path = os.fspath(path)
    if os.path.islink(path):
        return f"it is a link to {os.readlink(path)}: copy that file again from its source, then run snakemake"
    return f"make it again: {snakemake('--force', path)}"
