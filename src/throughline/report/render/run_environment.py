"""Where and when the runs were measured, for the report: environments, data, configurations, commits and times."""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from throughline.corpus import manifest as corpus_manifest
from throughline.records import RunRecord, Summary
from throughline.report.analysis import facts as known_facts
from throughline.report.render import tables
from throughline.report.render.tables import Table

CITATION = Path(__file__).parents[4] / "CITATION.cff"
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
Place = tuple[str, str]
"""A benchmark and a framework."""


def environments(summaries: Iterable[Summary]) -> Table | None:
    """Return a row for each fact of the environments; None without any fact.

    A fact that is not the same in all of them has a row for each value, which says where it holds.
    """
    places: list[Place] = []
    facts: dict[str, dict[str, list[Place]]] = {key: {} for key in NAMES}
    for summary in summaries:
        for framework, environment in summary.environment.items():
            place = summary.benchmark, framework
            if place not in places:
                places.append(place)
            for key, text in _facts(summary, environment).items():
                held = facts.setdefault(key, {}).setdefault(text, [])
                if place not in held:
                    held.append(place)
    rows = [
        [_name(key), text, "" if len(held) == len(places) else _by_benchmark(held)]
        for key, values in facts.items()
        for text, held in values.items()
    ]
    return tables.texts(["fact", "value", "where it is not the same"], rows, style="facts") if rows else None


def _facts(summary: Summary, environment: Any) -> dict[str, str]:
    """Return the facts of an environment as texts, and what is not known of it, grouped by the reason."""
    inner = dict(environment) if isinstance(environment, Mapping) else {}
    inner["packages"] = ", ".join(f"{name} {version}" for name, version in (inner.get("packages") or {}).items())
    device = summary.device.model_dump(exclude={"kind"}) if summary.device else {}
    unknown: dict[str, list[str]] = {}
    for key, reason in (inner.pop("reasons", None) or {}).items():
        unknown.setdefault(str(reason), []).append(_name(key))
    facts = known_facts.flat({"device": device, **inner})
    texts = {key: _text(key, value) for key, value in facts.items() if value not in (None, "")}
    lacking = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in unknown.items())
    return texts | ({"not known": lacking} if lacking else {})


def _name(key: str) -> str:
    return NAMES.get(key) or key.removeprefix("framework.").removeprefix("variables.")


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value != (key == "tree_clean") else "no"
    if key.endswith("memory_bytes") and isinstance(value, int):
        return f"{value / 2**30:.1f} GiB"
    if key == "gpus" and isinstance(value, list):
        cards = [", ".join(f"{name} {fact}" for name, fact in card.items() if fact is not None) for card in value]
        return "; ".join(f"{cards.count(card)} × ({card})" for card in dict.fromkeys(cards))
    return str(value)[:12] if key == "commit" else str(value)


def data(paths: Iterable[Path]) -> list[list[tuple[str, str]]]:
    """Return the facts in each manifest. If a manifest cannot be read, the only fact is the error."""
    return [[("manifest", "/".join(path.parts[-3:])), *_data(path)] for path in paths]


def _data(path: Path) -> list[tuple[str, str]]:
    """Return the facts of a manifest; those of a text corpus have names of their own."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parameters = known_facts.flat(content.get("parameters") or {})
        plain = [(key.replace("_", " "), str(value)) for key, value in content.items() if isinstance(value, str | int)]
        known = corpus_manifest.facts(content) if "vocabulary" in content else plain
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return [("not readable", f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)]
    return [*known, ("parameters", ", ".join(f"{key} {value}" for key, value in parameters.items()))]


def span(runs: Iterable[RunRecord]) -> str | None:
    """Return the first start and the last end (UTC) of these runs as text; None if no record says them."""
    windows = [run.times for run in runs if run.times]
    if not windows:
        return None
    first, last = min(start for start, _ in windows), max(end for _, end in windows)
    form = "%H:%M" if first.date() == last.date() else "%Y-%m-%d %H:%M"
    return f"{first:%Y-%m-%d %H:%M} to {last:{form}} UTC"


@dataclass(frozen=True)
class Measured:
    """A commit and the runs that were measured with it; `changed`: some ran with changes that were not committed."""

    commit: str
    runs: str
    changed: bool


def commits(runs: Iterable[RunRecord]) -> list[Measured]:
    """Return every commit that runs were measured with. Runs without a known commit are left out."""
    by_commit: dict[str, list[RunRecord]] = {}
    for run in runs:
        if commit := run.environment.get("commit"):
            by_commit.setdefault(str(commit), []).append(run)
    return [
        Measured(
            commit,
            _by_benchmark((run.spec.benchmark, run.spec.framework) for run in measured),
            changed=any(run.environment.get("tree_clean") is False for run in measured),
        )
        for commit, measured in by_commit.items()
    ]


def _by_benchmark(places: Iterable[Place]) -> str:
    """Return places as text, such as `bert: torch, jax; images: torch`."""
    by_benchmark: dict[str, dict[str, None]] = {}
    for benchmark, framework in places:
        by_benchmark.setdefault(benchmark, {})[framework] = None
    return "; ".join(f"{benchmark}: {', '.join(names)}" for benchmark, names in by_benchmark.items())


def repository(citation: Path = CITATION) -> str | None:
    """Return the address of Throughline's repository if CITATION.cff states one."""
    try:
        stated = YAML(typ="safe", pure=True).load(citation.read_text(encoding="utf-8"))
    except (OSError, YAMLError):
        return None
    address = stated.get("repository-code") if isinstance(stated, dict) else None
    return address if isinstance(address, str) and address.startswith("https://") else None


def configurations(runs: Iterable[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return the merged configurations that the runs came from, as YAML, each with its benchmarks."""
    merged: dict[str, Any] = {}
    for run in runs:
        if run.configuration is not None:
            merged.setdefault(run.spec.benchmark, run.configuration)
    texts: dict[str, list[str]] = {}
    for name, value in merged.items():
        stream = io.StringIO()
        YAML(typ="safe", pure=True).dump(_whole_keys(value), stream)
        text = "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())
        texts.setdefault(text, []).append(name)
    return [*texts.items()]


def _whole_keys(value: Any) -> Any:
    """Return a part of a configuration, with keys such as "128" as whole numbers.

    The JSON of a record makes texts of all keys. The workflow accepts only numbers there.
    """
    if isinstance(value, list):
        return [_whole_keys(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {int(key) if key.isdecimal() else key: _whole_keys(part) for key, part in value.items()}
