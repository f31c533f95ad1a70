"""Files under results/ -> entries. One of an older schema is translated, one of a newer schema is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from throughline import __version__
from throughline.files import UserError, read_json
from throughline.records import schema1
from throughline.records.convergence import ConvergenceVerdict, Curve
from throughline.records.entry import SCHEMA, Entry
from throughline.records.largest import MaxBatch
from throughline.records.proof import Equivalence
from throughline.records.run import RunRecord
from throughline.records.summary import Summary

Kind = TypeVar("Kind", bound=Entry)


def read_run(path: str | Path) -> RunRecord:
    """The record in a file; UserError where it is not one, or stands where another run's record belongs."""
    record = _validated(RunRecord, path)
    if not str(Path(path).as_posix()).endswith(record.spec.record.removeprefix("results/")):
        raise UserError(
            f"{path} holds the record of another run",
            why=f"its specification belongs at {record.spec.record}",
            next_step=f"remove the file and make it again: snakemake {path}",
        )
    return record


def dump(entry: Entry) -> dict[str, Any]:
    """What `files.write_json` writes."""
    return entry.model_dump(by_alias=True)


def leave_newer(paths: Iterable[str | Path]) -> None:
    """UserError where one of these files is there and a newer version has made it: this one must not make it again."""
    for path in filter(lambda path: Path(path).is_file(), paths):
        try:
            value = read_json(path)
        except UserError:  # damaged: made again
            continue
        _leave_newer(value, path)


def _leave_newer(value: Any, path: str | Path) -> None:
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if isinstance(schema, int) and schema > SCHEMA:
        commit = next((str(found) for found in _values(value.get("environment"), "commit") if found), "not known")
        raise UserError(
            f"{path} has schema {schema}; this version of Throughline ({__version__}) reads 1 to {SCHEMA}",
            why=f"schema {schema} is of a newer version (its commit: {commit}); the file is left as it is",
            next_step="use that version, or a results folder of its own for this one",
        )


def _values(value: Any, key: str) -> Iterator[Any]:
    """Everything that stands under `key` in nested maps."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from [inner] if name == key else _values(inner, key)


def _validated(model: type[Kind], path: str | Path) -> Kind:
    value = read_json(path)
    _leave_newer(value, path)
    if isinstance(value, Mapping) and value.get("schema") not in range(1, SCHEMA + 1):
        raise UserError(
            f"{path} has schema {value.get('schema')!r}; this version reads 1 to {SCHEMA}",
            next_step="remove the file and run snakemake again",
        )
    try:
        return model.model_validate(schema1.translated(model.__name__, value))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path} is not a valid {model.__name__}",
            why=f"{where}: {first['msg']}"
            + (f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""),
            next_step="remove the file and run snakemake again",
        ) from None


# A file of one kind -> its entry; UserError where it is none.
read_summary = partial(_validated, Summary)
read_equivalence = partial(_validated, Equivalence)
read_max_batch = partial(_validated, MaxBatch)
read_curve = partial(_validated, Curve)
read_verdict = partial(_validated, ConvergenceVerdict)
