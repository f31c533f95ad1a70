"""Read files under results/ into entries. We translate files of an older schema, and refuse files of a newer one.

Schema 1, of version 0.1, knew only one model. Its unit was always samples/s, a batch was that of each device, a speedup
was over one device, and each figure of a proof or an evaluation had its own key.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from throughline import __version__
from throughline.files import UserError, read_json, snakemake, write_json
from throughline.records.acceptance import Acceptance
from throughline.records.checks import ConvergenceVerdict, Curve, Equivalence, Look, MaxBatch
from throughline.records.compared import Compared
from throughline.records.entry import SCHEMA, Entry
from throughline.records.imported import Imported
from throughline.records.predictions import Predictions
from throughline.records.run import RunRecord
from throughline.records.summary import Summary
from throughline.records.visit import Unfinished
from throughline.spec import RunSpec

Kind = TypeVar("Kind", bound=Entry)


def read_run(path: str | Path) -> RunRecord:
    """Return the record in a file. Raise UserError if it is no record, or if the record belongs at another path."""
    record = _validated(RunRecord, path)
    if not str(Path(path).as_posix()).endswith(record.spec.record.removeprefix("results/")):
        raise UserError(
            f"{path} holds the record of another run",
            why=f"its specification belongs at {record.spec.record}",
            next_step=f"remove the file and make it again: {snakemake(str(path))}",
        )
    return record


def read_run_of(path: str | Path, spec: RunSpec) -> RunRecord:
    """Return the record of this specification in a file, wherever it is. Raise UserError if it is another one's."""
    record = _validated(RunRecord, path)
    if record.spec.canonical != spec.canonical:
        raise UserError(
            f"{path} holds the record of another run",
            why="its specification is not the one that is asked for now",
            next_step="remove the file, and run the command again that made it",
        )
    return record


def write(kind: type[Entry], content: dict[str, Any], path: Path) -> None:
    """Check the content of a file of this kind, and write it."""
    kind.model_validate(content)
    write_json(path, content)


def leave_newer(paths: Iterable[str | Path]) -> None:
    """Raise UserError if a newer version has made one of these files, because this version must not replace it."""
    for path in filter(os.path.isfile, paths):
        try:
            value = read_json(path)
        except UserError:  # a damaged file is made again
            continue
        _leave_newer(value, path)


def _leave_newer(value: Any, path: str | Path) -> None:
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if isinstance(schema, int) and schema > SCHEMA:
        commit = re.search(r'"commit": "([^"]+)"', json.dumps(value.get("environment")))
        raise UserError(
            f"{path} has schema {schema}; this version of Throughline ({__version__}) reads 1 to {SCHEMA}",
            why=f"schema {schema} is of a newer version (its commit: {commit[1] if commit else 'not known'}); "
            "the file is left as it is",
            next_step="use that version, or a results folder of its own for this one",
        )


def _validated(model: type[Kind], path: str | Path) -> Kind:
    value = read_json(path)
    _leave_newer(value, path)
    if isinstance(value, Mapping) and value.get("schema") not in range(1, SCHEMA + 1):
        raise UserError(
            f"{path} has schema {value.get('schema')!r}; this version reads 1 to {SCHEMA}",
            next_step="remove the file and run snakemake again",
        )
    try:
        return model.model_validate(_translated(model, value))
    except ValidationError as error:
        first, more = error.errors()[0], error.error_count() - 1
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path} is not a valid {model.__name__}",
            why=f"{where}: {first['msg']}" + (f" (and {more} more)" if more else ""),
            next_step="remove the file and run snakemake again",
        ) from None


def _translated(model: type[Entry], value: Any) -> Any:
    """Translate the value of a file of schema 1 to schema 2. Leave any other value unchanged for the validation."""
    if not isinstance(value, dict) or value.get("schema") != 1:
        return value
    value = {**value, "schema": SCHEMA}
    with suppress(KeyError, TypeError, AttributeError):
        if model is RunRecord:
            value |= {"unit": "samples/s", "figures": []}
        elif model is Summary:
            for series in value["frameworks"].values():
                for cell in series.values():
                    cell["replicas"] = cell["world_size"]
            baselines = dict.fromkeys(value["frameworks"], "1n1g")
            value |= {"batch": value["batch_size_per_device"], "baselines": baselines}
        elif model is Curve:
            value["curve"] = [Look.flat(look) for look in value["curve"]]
        elif model is ConvergenceVerdict:
            value["last"] = Look.flat(value["last"]) if value["last"] else None
        elif model is Equivalence:
            value["batch"] = value.pop("batch_size_per_device")
    return value


# Each function reads a file of one kind, and raises UserError if the file is not of this kind.
read_summary = partial(_validated, Summary)
read_equivalence = partial(_validated, Equivalence)
read_max_batch = partial(_validated, MaxBatch)
read_curve = partial(_validated, Curve)
read_verdict = partial(_validated, ConvergenceVerdict)
read_imported = partial(_validated, Imported)
read_compared = partial(_validated, Compared)
read_predictions = partial(_validated, Predictions)
read_acceptance = partial(_validated, Acceptance)
read_unfinished = partial(_validated, Unfinished)
