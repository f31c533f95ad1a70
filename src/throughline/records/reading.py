"""Read files under results/ into entries. Only files of our own schema are read; others are refused with a reason."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from throughline import __version__
from throughline.files import UserError, read_json, snakemake, write_json
from throughline.records.entry import SCHEMA, Entry
from throughline.records.run import RunRecord
from throughline.spec import RunSpec

Kind = TypeVar("Kind", bound=Entry)


def read_run(path: str | Path) -> RunRecord:
    """Return the record in a file. Raise UserError if it is no record, or if the record belongs at another path."""
    record = read(RunRecord, path)
    if not str(path).endswith(record.spec.record.removeprefix("results/")):
        raise UserError(
            f"{path} holds the record of another run",
            why=f"its specification belongs at {record.spec.record}",
            next_step=f"remove the file and make it again: {snakemake(str(path))}",
        )
    return record


def read_run_of(path: str | Path, spec: RunSpec) -> RunRecord:
    """Return the record of this specification in a file, wherever it is. Raise UserError if it is another one's."""
    record = read(RunRecord, path)
    if record.spec.canonical != spec.canonical:
        raise UserError(
            f"{path} holds the record of another run",
            why="its specification is not the one that is asked for now",
            next_step="remove the file, and run the command again that made it",
        )
    return record


def stored_run(path: Path) -> RunRecord | None:
    """Return the record in a file; None if there is no such file, or if it is no record that this version reads."""
    try:
        return read(RunRecord, path)
    except (UserError, OSError):
        return None


def write(kind: type[Entry], content: dict[str, Any], path: Path) -> None:
    """Check the content of a file of this kind, and write it."""
    kind.model_validate(content)
    write_json(path, content)


def leave_newer(paths: Iterable[str | Path]) -> None:
    """Raise UserError if a newer version has made one of these files, because this version must not replace it."""
    for path in filter(os.path.isfile, paths):
        value = None
        with suppress(UserError):  # a damaged file is made again
            value = read_json(path)
        _leave_newer(value, path)


def _leave_newer(value: Any, path: str | Path) -> None:
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if isinstance(schema, int) and schema > SCHEMA:
        commit = re.search(r'"commit": "([^"]+)"', json.dumps(value.get("environment")))
        raise UserError(
            f"{path} has schema {schema}; this version of Throughline ({__version__}) reads schema {SCHEMA}",
            why=f"schema {schema} is of a newer version (its commit: {commit[1] if commit else 'not known'}); "
            "the file is left as it is",
            next_step="use that version, or a results folder of its own for this one",
        )


def _refuse_others(value: Any, path: str | Path) -> None:
    """Raise UserError unless the value of a file has our schema."""
    _leave_newer(value, path)
    if not isinstance(value, Mapping) or value.get("schema") == SCHEMA:
        return
    older = value.get("schema") in range(1, SCHEMA)
    raise UserError(
        f"{path} has schema {value.get('schema')!r}; this version of Throughline ({__version__}) reads schema {SCHEMA}",
        why="version 0.3 or earlier made it" if older else None,
        next_step="remove the file and run snakemake again" + older * ", or read it with the version that made it",
    )


def read(model: type[Kind], path: str | Path) -> Kind:
    """Return the content of a file of this kind. UserError if the file is not of this kind, or has another schema."""
    with suppress(ValidationError, OSError):  # twice as fast; what is wrong is found out below
        return model.model_validate_json(Path(path).read_bytes())
    value = read_json(path)
    _refuse_others(value, path)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first, more = error.errors()[0], error.error_count() - 1
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path} is not a valid {model.__name__}",
            why=f"{where}: {first['msg']}" + (f" (and {more} more)" if more else ""),
            next_step="remove the file and run snakemake again",
        ) from None
