"""Read a folder of logs into imported.json: every file with its outcome, in the order of the names."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from throughline.comparables.logs import kinds
from throughline.comparables.logs.log import NOT_SAID, Log, Reading, Unusable
from throughline.files import UserError, natural, scrubbed
from throughline.records import SCHEMA, ImportedRun

LARGEST = 64 * 2**20
"""We do not read a larger file, because the log of a training run is text for people."""
CONTROL, ODD_AT_MOST = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")), 0.1
"""Bytes that text does not have, and the share of such bytes and of damaged letters that we accept in a log.

Ranks that write at the same time leave some.
"""
FACTS = ("model", "precision", "batch_size_per_device", "accumulate", "devices", "nodes", "hardware", "software")
NAMES = {
    "model": r"(resnet50|bert[_-](?:base|large)|gpt2[_-](?:small|medium|large|xl))",
    "precision": r"(?<![a-z0-9])(fp32|tf32|bf16|fp16|amp|fp8)(?![a-z0-9])",
    "batch_size_per_device": r"(?<![a-z0-9])b(?:s|z)?(\d+)(?![a-z0-9])",
    "devices": r"gpus?(\d+)(?![a-z0-9])|(?<![a-z0-9])(\d+)gpus?(?![a-z])",
    "topology": r"(?<![a-z0-9])n?(\d+)[nc](\d+)g?(?![a-z0-9])",
}
"""Patterns for facts in the names of a file and its folders, such as `bz32/4n8g/bert_b32_fp32_1.log`.

We use them if the log itself does not state the fact.
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
    found: dict[str, list[Reading] | Unusable] = {}
    known = kinds.found()
    for name, read in known.items():
        try:
            if runs := list(read(log)):
                found[name] = runs
        except Unusable as unusable:
            found[name] = unusable
        except Exception as error:  # a fault in one file must not keep us from reading the others
            found[name] = Unusable("broken", f"its lines cannot be read ({type(error).__name__})")
    if not found:
        raise Unusable("foreign", f"no line of it is of a kind that is known: {', '.join(known)}")
    if len(found) > 1:
        raise Unusable("mixed", f"it holds lines of {' and '.join(found)}; give each run a file of its own")
    ((name, outcome),) = found.items()
    if isinstance(outcome, Unusable):
        raise Unusable(outcome.status, f"{name}: {outcome.reason}")
    return name, outcome


def _run(reading: Reading, kind: str, name: str) -> dict[str, Any]:
    """Return a reading with the keys of imported.json. Facts that the log does not state may come from its name."""
    said = {
        "model": reading.model if reading.model and MODEL.fullmatch(reading.model) else None,
        "precision": reading.precision,
        "batch_size_per_device": reading.batch,
        "accumulate": reading.accumulate,
        "devices": reading.devices,
        "nodes": reading.nodes,
        "hardware": reading.hardware,
        "software": reading.software,
    }
    named = {key: value for key, value in _named(name.lower()).items() if said[key] is None}
    facts = {**said, **named}
    return {
        "framework": reading.framework or kind,
        **facts,
        "value": reading.value,
        "unit": reading.unit,
        "rule": reading.rule,
        "named": sorted(named),
        "reasons": {key: reading.reasons.get(key, NOT_SAID) for key in FACTS if facts[key] is None},
    }


def _named(name: str) -> dict[str, Any]:
    """Return the facts in a file's name, with the keys of imported.json."""
    found = {key: re.search(pattern, name) for key, pattern in NAMES.items()}
    words = {key: next(filter(None, match.groups())) for key, match in found.items() if match and key != "topology"}
    values: dict[str, Any] = {key: int(word) for key, word in words.items() if word.isdigit() and int(word)}
    if "model" in words:
        values["model"] = words["model"].replace("_", "-")
    if "precision" in words:
        values["precision"] = words["precision"].replace("amp", "fp16")
    if re.search(r"without_grad_?acc", name):
        values["accumulate"] = 1
    if (match := found["topology"]) and int(match[1]) and int(match[2]):
        nodes, each = int(match[1]), int(match[2])
        values |= {"nodes": nodes, "devices": each if match[0].startswith("n") else nodes * each}
    return values
