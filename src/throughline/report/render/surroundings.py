"""What was measured on what, for the report: environments side by side, corpus facts, and when it was."""

import io
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from throughline.corpus import facts as corpus
from throughline.records import Summary
from throughline.report.analysis import advice

NAMES = {
    "device.name": "device",
    "device.count": "devices on the machine",
    "device.fp16_native": "device has fp16 units",
    "cpu": "CPU",
    "cpu_cores": "CPU cores for the run",
    "cpu_sockets": "CPU sockets",
    "cpu_governor": "CPU governor",
    "cpu_quota_cores": "CPU quota, cores",
    "numa_nodes": "NUMA nodes",
    "binding": "binding of ranks",
    "transparent_hugepages": "transparent huge pages",
    "memory_bytes": "memory",
    "gpus": "GPUs",
    "gpu_topology": "nvidia-smi topo -m",
    "driver": "GPU driver",
    "os": "operating system",
    "kernel": "kernel",
    "python": "Python",
    "mpi": "MPI",
    "packages": "packages",
    "digest": "digest of the environment",
    "code": "digest of the measured code",
    "commit": "commit of Throughline",
    "tree_clean": "uncommitted changes",
}


def environments(summaries: Iterable[Summary]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Columns (who ran in it) and rows (what it was) of every different environment."""
    different: dict[str, tuple[dict[str, Any], dict[str, None]]] = {}
    for summary in summaries:
        device = {"device": summary.device.model_dump()} if summary.device else {}
        for framework, environment in summary.environment.items():
            inner = dict(environment) if isinstance(environment, Mapping) else {}
            packages = inner.get("packages") or {}
            inner["packages"] = ", ".join(f"{name} {version}" for name, version in packages.items()) or None
            facts = advice.flat({**device, **inner})
            names = different.setdefault(json.dumps(facts, sort_keys=True, default=str), (facts, {}))[1]
            names[f"{summary.benchmark}: {framework}"] = None
    every = [facts for facts, _ in different.values()]
    keys = dict.fromkeys(key for facts in every for key in facts)
    order = {key: place for place, key in enumerate(NAMES)}
    rows = [
        (_name(key), [_value(key, facts.get(key)) for facts in every])
        for key in sorted(keys, key=lambda key: order.get(key, len(order)))
        if key != "device.kind" and not key.startswith("reasons.")
        and any(facts.get(key) is not None for facts in every)
    ]  # fmt: skip
    unknown = [_unknown(facts) for facts in every]
    columns = [", ".join(names) for _, names in different.values()]
    return columns, [*rows, ("not known", unknown)] if any(unknown) else rows


def _unknown(facts: Mapping[str, Any]) -> str:
    """What is not known of an environment, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for key, why in facts.items():
        if key.startswith("reasons."):
            by_reason.setdefault(str(why), []).append(_name(key.removeprefix("reasons.")))
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())


def _name(key: str) -> str:
    return NAMES.get(key) or key.removeprefix("framework.").removeprefix("variables.")


def _value(key: str, value: Any) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value != (key == "tree_clean") else "no"
    if key.endswith("memory_bytes") and isinstance(value, int):
        return f"{value / 2**30:.1f} GiB"
    if key == "gpus" and isinstance(value, list):
        cards = [", ".join(f"{name} {fact}" for name, fact in card.items() if fact is not None) for card in value]
        return "; ".join(f"{cards.count(card)} × ({card})" for card in dict.fromkeys(cards))
    if key == "commit":
        return str(value)[:12]
    return str(value)


def data(paths: Iterable[Path]) -> list[list[tuple[str, str]]]:
    """What the manifests say about the data; one that cannot be read says so."""
    return [[("manifest", "/".join(path.parts[-3:])), *_data(path)] for path in paths]


def _data(path: Path) -> list[tuple[str, str]]:
    """The facts of a manifest, in its room's words where it has any."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parameters = advice.flat(content.get("parameters") or {})
        plain = [(key.replace("_", " "), str(value)) for key, value in content.items() if isinstance(value, str | int)]
        known = corpus.of(content) if "vocabulary" in content else plain
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return [("not readable", f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)]
    return [*known, ("parameters", ", ".join(f"{key} {value}" for key, value in parameters.items()))]


@dataclass(frozen=True)
class Ran:
    """What the page takes from a run's record; None or nothing where the record does not say it."""

    benchmark: str
    window: tuple[datetime, datetime] | None
    configuration: dict[str, Any] | None
    steps: list[float]


def ran(logs: Iterable[Path]) -> dict[Path, Ran]:
    """The record beside every log; one that cannot be read is left out."""
    every = {}
    for log in logs:
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))
            steps = record.get("step_seconds") if record["status"] == "ok" else None
            every[log] = Ran(
                str(record["spec"]["benchmark"]), _window(record), record.get("configuration"), steps or []
            )
    return every


def _window(record: dict[str, Any]) -> tuple[datetime, datetime] | None:
    try:
        start, end = (datetime.fromisoformat(record[key]).astimezone(UTC) for key in ("started", "ended"))
    except (KeyError, TypeError, ValueError):
        return None
    return start, end


def span(runs: Iterable[Ran]) -> str | None:
    """First start to last end (UTC) of these runs; None where no record says it."""
    windows = [run.window for run in runs if run.window]
    if not windows:
        return None
    first, last = min(start for start, _ in windows), max(end for _, end in windows)
    form = "%H:%M" if first.date() == last.date() else "%Y-%m-%d %H:%M"
    return f"{first:%Y-%m-%d %H:%M} to {last:{form}} UTC"


def configurations(runs: Iterable[Ran]) -> list[tuple[str, str]]:
    """Of every benchmark the merged configuration that its runs came from, as YAML: (names, text), alike ones once."""
    merged: dict[str, Any] = {}
    for run in runs:
        if isinstance(run.configuration, dict):
            merged.setdefault(run.benchmark, run.configuration)
    texts: dict[str, list[str]] = {}
    for name, value in merged.items():
        stream = io.StringIO()
        YAML(typ="safe", pure=True).dump(value, stream)
        text = "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())
        texts.setdefault(text, []).append(name)
    return [(", ".join(names), text) for text, names in texts.items()]
