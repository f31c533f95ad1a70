"""Find the file of an installed package that a sample is made of."""

from __future__ import annotations

from pathlib import Path

from throughline import files
from throughline.files import UserError


def installed_file(what: str, package: str, name: str, sha256: str | None = None) -> Path:
    """Return the path of a file of an installed package; UserError if there is none with this SHA-256.

    `what` names the sample in the error.
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
