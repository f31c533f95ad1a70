"""Read a folder of logs into imported.json: every file with its outcome, in the order of the names."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from throughline.comparables.logs import file_names, kinds
from throughline.comparables.logs.log import NOT_SAID, Log, Reading, Unusable
from throughline.files import UserError, natural, scrubbed
from throughline.records import SCHEMA, ImportedRun

LARGEST = 64 * 2**20
"""We do not read a larger file, because the log of a training run is text for people."""
CONTROL, ODD_AT_MOST = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")), 0.1
"""Bytes that text does not have, and the share of such bytes and of damaged letters that we accept in a log.

Ranks that write at the same time leave some.
"""
ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
MODEL = re.compile(r"[A-Za-z][\w .,+-]*(?:/[\w.+-]+)?")
"""The form of a model's name. A path on somebody's machine does not match it."""


def imported(name: str, folder: Path) -> dict[str, Any]:
    """Return the content of imported.json. Raise UserError if the folder does not exist or is empty."""
    if not folder.is_dir():
        raise UserError(f"imports.{name}.logs: {folder} is no folder", next_step="write the folder that holds the logs")
    files = sorted((path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."), key=natural)
    if not files:
        raise UserError(f"imports.{name}.logs: {folder} holds no file", next_step="put the logs into it")
    runs = [run for path in files for run in of_file(path, ADDRESS.sub("ADDRESS", path.relative_to(folder).as_posix()))]
    return {"schema": SCHEMA, "name": name, "files": scrubbed(runs)}


def of_file(path: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the runs of a file. If it has none, yield one entry without a figure and with the reason."""
    try:
        content = _content(path)
        digest = hashlib.sha256(content).hexdigest()
        kind, readings = _read(Log(name, _text(content)))
    except Unusable as unusable:
        yield {"file": name, "status": unusable.status, "reason": unusable.reason}
        return
    except OSError as error:
        yield {"file": name, "status": "broken", "reason": f"it cannot be read: {error.strerror}"}
        return
    for reading in readings:
        run = {"file": name, "status": "ok", "kind": kind, **_run(reading, kind, name), "sha256": digest}
        try:
            ImportedRun.model_validate(run)
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            run = {"file": name, "status": "broken", "kind": kind, "reason": f"{kind}: what it says of {key} cannot be"}
        yield run


def _content(path: Path) -> bytes:
    if (size := path.stat().st_size) > LARGEST:
        raise Unusable("too_large", f"it has {size // 2**20} MiB, and {LARGEST // 2**20} are read at most; cut it")
    if not size:
        raise Unusable("foreign", "it is empty")
    return path.read_bytes()


def _text(content: bytes) -> str:
    """Return the content as text. Raise Unusable if it is no text.

    We accept a log with some damaged letters or control characters.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    plain = content.translate(None, CONTROL)
    text = plain.decode("utf-8", "replace")
    if len(content) - len(plain) + text.count("\ufffd") > ODD_AT_MOST * len(content):
        raise Unusable("binary", "it is no text: too many of its bytes are no letters")
    return text


def _read(log: Log) -> tuple[str, list[Reading]]:
    """Return the kind of a log and its runs. Raise Unusable if it has none, or is of several kinds."""
    outcomes: dict[str, list[Reading] | Unusable] = {}
    known = kinds.found()
    for name, read in known.items():
        try:
            if runs := list(read(log)):
                outcomes[name] = runs
        except Unusable as unusable:
            outcomes[name] = unusable
        except Exception as error:  # a fault in one file must not keep us from reading the others
            outcomes[name] = Unusable("broken", f"its lines cannot be read ({type(error).__name__})")
    if not outcomes:
        raise Unusable("foreign", f"no line of it is of a kind that is known: {', '.join(known)}")
    if len(outcomes) > 1:
        raise Unusable("mixed", f"it holds lines of {' and '.join(outcomes)}; give each run a file of its own")
    ((name, outcome),) = outcomes.items()
    if isinstance(outcome, Unusable):
        raise Unusable(outcome.status, f"{name}: {outcome.reason}")
    return name, outcome


def _run(reading: Reading, kind: str, name: str) -> dict[str, Any]:
    """Return a reading with the keys of imported.json. Facts that the log does not state may come from its name."""
    stated = {
        "model": reading.model if reading.model and MODEL.fullmatch(reading.model) else None,
        "precision": reading.precision,
        "batch_size_per_device": reading.batch,
        "gradient_accumulation": reading.gradient_accumulation,
        "devices": reading.devices,
        "nodes": reading.nodes,
        "hardware": reading.hardware,
        "software": reading.software,
    }
    named = {key: value for key, value in file_names.facts(name).items() if stated[key] is None}
    facts = {**stated, **named}
    return {
        "framework": reading.framework or kind,
        **facts,
        "value": reading.value,
        "unit": reading.unit,
        "rule": reading.rule,
        "named": sorted(named),
        "reasons": {key: reading.reasons.get(key, NOT_SAID) for key, fact in facts.items() if fact is None},
    }
