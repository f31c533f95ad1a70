"""Read a folder of logs into imported.json: every file with its outcome, in the order of the names."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from throughline.comparables.logs import kinds
from throughline.comparables.logs.kind import read
from throughline.comparables.logs.log import Log, Unusable
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
IN_NAMES = {
    "model": r"(resnet50|bert[_-](?:base|large)|gpt2[_-](?:small|medium|large|xl))",
    "precision": r"(?<![a-z0-9])(fp32|tf32|bf16|fp16|amp|fp8)(?![a-z0-9])",
    "batch_size_per_device": r"(?<![a-z0-9])b(?:s|z)?(\d+)(?![a-z0-9])",
    "devices": r"gpus?(\d+)(?![a-z0-9])|(?<![a-z0-9])(\d+)gpus?(?![a-z])",
    "topology": r"(?<![a-z0-9])n?(\d+)[nc](\d+)g?(?![a-z0-9])",
}
"""Facts in the names of a file and its folders, such as `bz32/4n8g/bert_b32_fp32_1.log`."""
FACTS = (
    "model", "precision", "batch_size_per_device", "gradient_accumulation", "devices", "nodes", "hardware", "software",
)  # fmt: skip
"""What a log may say of its run. `reasons` says why a fact is null."""


def imported(name: str, folder: Path) -> dict[str, Any]:
    """Return the content of imported.json. Raise UserError if the folder does not exist or is empty."""
    if not folder.is_dir():
        raise UserError(f"imports.{name}.logs: {folder} is no folder", next_step="write the folder that holds the logs")
    files = sorted((path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."), key=natural)
    if not files:
        raise UserError(f"imports.{name}.logs: {folder} holds no file", next_step="put the logs into it")
    runs = [run for path in files for run in of_file(path, ADDRESS.sub("ADDRESS", path.relative_to(folder).as_posix()))]
    return {"schema": SCHEMA, "name": name, "files": scrubbed([run.model_dump() for run in runs])}


def of_file(path: Path, name: str) -> Iterator[ImportedRun]:
    """Yield the runs of a file. If it has none, yield one entry without a figure and with the reason."""
    try:
        content = _content(path)
        kind, runs = _read(Log(name, _text(content)))
    except Unusable as unusable:
        yield ImportedRun(file=name, status=unusable.status, reason=unusable.reason)
        return
    except OSError as error:
        yield ImportedRun(file=name, status="broken", reason=f"it cannot be read: {error.strerror}")
        return
    digest = hashlib.sha256(content).hexdigest()
    for run in runs:
        yield _completed(run, name).model_copy(
            update={"file": name, "kind": kind, "framework": run.framework or kind, "sha256": digest}
        )


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


def _read(log: Log) -> tuple[str, list[ImportedRun]]:
    """Return the kind of a log and its runs. Raise Unusable if it has none, or is of several kinds."""
    outcomes: dict[str, list[ImportedRun] | Unusable] = {}
    everything = kinds.find_all()
    for kind in everything:
        if (title := kind.title) in outcomes:
            continue
        try:
            if runs := read(kind, log):
                outcomes[title] = runs
        except Unusable as unusable:
            outcomes[title] = Unusable(unusable.status, f"{title}: {unusable.reason}")
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            outcomes[title] = Unusable("broken", f"{title}: what it says of {key} cannot be")
        except Exception as error:  # a fault in one file must not keep us from reading the others
            outcomes[title] = Unusable("broken", f"{title}: its lines cannot be read ({type(error).__name__})")
    if not outcomes:
        raise Unusable(
            "foreign",
            f"no line of it is of a kind that is known: {', '.join(sorted({kind.title for kind in everything}))}",
        )
    if len(outcomes) > 1:
        raise Unusable("mixed", f"it holds lines of {' and '.join(outcomes)}; give each run a file of its own")
    ((name, outcome),) = outcomes.items()
    if isinstance(outcome, Unusable):
        raise outcome
    return name, outcome


def _completed(run: ImportedRun, name: str) -> ImportedRun:
    """Return a run with the facts from the file's name that the log does not state, and why the others are unknown."""
    facts = {key: getattr(run, key) for key in FACTS}
    if run.model and not MODEL.fullmatch(run.model):
        facts["model"] = None
    named = {key: value for key, value in facts_in(name).items() if facts[key] is None}
    facts |= named
    reasons = {key: run.reasons.get(key, "the log does not say it") for key, fact in facts.items() if fact is None}
    return run.model_copy(update={**facts, "named": sorted(named), "reasons": reasons})


def facts_in(name: str) -> dict[str, Any]:
    """Return the facts in the path of a file, with the keys of imported.json."""
    name = name.lower()
    matches = {key: re.search(pattern, name) for key, pattern in IN_NAMES.items()}
    words = {key: next(filter(None, match.groups())) for key, match in matches.items() if match and key != "topology"}
    values: dict[str, Any] = {key: int(word) for key, word in words.items() if word.isdigit() and int(word)}
    if "model" in words:
        values["model"] = words["model"].replace("_", "-")
    if "precision" in words:
        values["precision"] = words["precision"].replace("amp", "fp16")
    if re.search(r"without_grad_?acc", name):
        values["gradient_accumulation"] = 1
    if (match := matches["topology"]) and int(match[1]) and int(match[2]):
        nodes, each = int(match[1]), int(match[2])
        values |= {"nodes": nodes, "devices": each if match[0].startswith("n") else nodes * each}
    return values
