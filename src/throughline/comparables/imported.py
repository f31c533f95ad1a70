"""Read a folder of logs into imported.json: every file with its outcome, in the order of the names."""

import hashlib
import re
from collections.abc import Iterator
from operator import mul
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from throughline import log_kinds
from throughline.files import UserError, natural, scrubbed
from throughline.log_kinds.kind import FACTS, Fact, Log, Unusable, computed, fact_of, named, read
from throughline.records import SCHEMA, ImportedRun
from throughline.text_files import UNREADABLE, opened

LARGEST = 64 * 2**20
"""We do not read a larger file, because the log of a training run is text for people."""
CONTROL, ODD_AT_MOST = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")), 0.1
"""Bytes that text does not have, and the share of them and of damaged letters that ranks writing at once may leave."""
ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
MODEL = re.compile(r"[A-Za-z][\w .,+-]*(?:/[\w.+-]+)?")
"""The form of a model's name. A path on somebody's machine does not match it."""
RANDOM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The form of a UUID in a file's name, in which `b816` is no batch."""
NODES, EACH = (
    rf"(?<![a-z0-9])n?{pair}g?(?![a-z0-9])" for pair in (r"([1-9]\d*)[nc][1-9]\d*", r"[1-9]\d*[nc]([1-9]\d*)")
)
MODEL_NAMES = (
    "(resnet50|bert[_-](base|large)|gpt2[_-](small|medium|large|xl)"
    "|all[_-](?:reduce|gather)|reduce[_-]scatter|alltoall)"
)
IN_NAMES: dict[str, Fact] = {
    "model": lambda log: (log.named(MODEL_NAMES) or "").replace("_", "-"),
    "precision": named(r"(?<![a-z0-9])(fp32|tf32|bf16|fp16|amp|fp8)(?![a-z0-9])"),
    "batch_size_per_device": named(r"(?<![a-z0-9])b(?:s|z)?(\d+)(?![a-z0-9])"),
    "gradient_accumulation": lambda log: 1 if log.named("(without_grad_?acc)") else None,
    "devices": (
        named(EACH.replace("n?", "n")),  # N1C8 has 8 cards
        computed(mul, named(NODES), named(EACH)),
        named(r"gpus?(\d+)(?![a-z0-9])"),
        named(r"(?<![a-z0-9])(\d+)gpus?(?![a-z])"),
    ),
    "nodes": named(NODES),
}
"""Facts in the names of a file and its folders, such as `bz32/4n8g/bert_b32_fp32_1.log`."""


def imported(name: str, folder: Path) -> dict[str, Any]:
    """Return the content of imported.json. Raise UserError if the folder, or file, does not exist or is empty."""
    if not folder.exists():
        raise UserError(f"imports.{name}.logs: {folder} does not exist", next_step="write the folder with the logs")
    within, found = (folder.parent, [folder]) if folder.is_file() else (folder, folder.rglob("*"))
    files = sorted((path for path in found if path.is_file() and path.name[0] != "."), key=natural)
    if not files:
        raise UserError(f"imports.{name}.logs: {folder} holds no file", next_step="put the logs into it")
    runs = [run for path in files for run in of_file(path, ADDRESS.sub("ADDRESS", path.relative_to(within).as_posix()))]
    return {"schema": SCHEMA, "name": name, "files": scrubbed([run.model_dump() for run in runs])}


def of_file(path: Path, name: str) -> Iterator[ImportedRun]:
    """Yield the runs of a file. If it has none, yield one entry without a figure and with the reason."""
    try:
        with opened(path) as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise Unusable("too_large", f"it has more than the {LARGEST // 2**20} MiB that are read at most; cut it")
        title, runs = _read(Log(name, _text(content)))
    except Unusable as unusable:
        yield ImportedRun(file=name, status=unusable.status, reason=unusable.reason)
        return
    except UNREADABLE as error:
        reason = (isinstance(error, OSError) and error.strerror) or "its packed data is damaged, or cut off"
        yield ImportedRun(file=name, status="broken", reason=f"it cannot be read: {reason}")
        return
    for run in runs:
        facts = {key: getattr(run, key) for key in FACTS}
        if run.model and not MODEL.fullmatch(run.model):
            facts["model"] = None
        missing = [key for key, fact in facts.items() if fact is None and key in IN_NAMES]
        in_name = {key: fact_of(key, IN_NAMES[key], Log(RANDOM.sub("", name.lower()), "")) for key in missing}
        from_name = {key: fact for key, fact in in_name.items() if fact}
        facts |= from_name
        whole = {
            "file": name,
            "kind": title,
            "framework": run.framework or title,
            "sha256": hashlib.sha256(content).hexdigest(),
            "named": sorted(from_name),
            "reasons": {key: "the log does not say it" for key, fact in facts.items() if fact is None},
        }
        yield run.model_copy(update={**facts, **whole})


def _text(content: bytes) -> str:
    """Return the content as text. Raise Unusable if too much of it is no text."""
    if not content:
        raise Unusable("foreign", "it is empty")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    plain = content.translate(None, CONTROL)
    text = plain.decode("utf-8-sig", "replace")
    if len(content) - len(plain) + text.count("\ufffd") > ODD_AT_MOST * len(content):
        raise Unusable("binary", "it is no text: too many of its bytes are no letters")
    return text


def _read(log: Log) -> tuple[str, list[ImportedRun]]:
    """Return the title of a log's kind, and its runs. Raise Unusable if it has no kind, or several."""
    outcomes: dict[str, list[ImportedRun] | Unusable] = {}
    everything = log_kinds.find_all()
    for kind in everything:
        if (title := kind.title) in outcomes:
            continue
        try:
            if runs := [ImportedRun(**fields) for fields in read(kind, log)]:
                outcomes[title] = runs
        except Unusable as unusable:
            outcomes[title] = Unusable(unusable.status, f"{title}: {unusable.reason}")
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            outcomes[title] = Unusable("broken", f"{title}: what it says of {key} cannot be")
        except Exception as error:  # a fault in one file must not keep us from reading the others
            outcomes[title] = Unusable("broken", f"{title}: its lines cannot be read ({type(error).__name__})")
    if not outcomes:
        titles = ", ".join(sorted({kind.title for kind in everything}))
        raise Unusable("foreign", f"no line of it is of a kind that is known: {titles}")
    if len(outcomes) > 1:
        raise Unusable("mixed", f"it holds lines of {' and '.join(outcomes)}; give each run a file of its own")
    ((title, outcome),) = outcomes.items()
    if isinstance(outcome, Unusable):
        raise outcome
    return title, outcome
