"""How, where and when the runs were measured: setup, environments, frameworks, data, configurations, commits, times."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from throughline import frameworks as every_framework
from throughline import gpus, statistics, workloads
from throughline.corpus import manifest as corpus_manifest
from throughline.frameworks import reference
from throughline.grouping import grouped
from throughline.installation import recipe
from throughline.numbers import percent
from throughline.programs import words
from throughline.records import RunRecord, Summary
from throughline.report.analysis import workload_figures as workload
from throughline.report.analysis.advice import in_groups
from throughline.report.analysis.differences import flat
from throughline.report.render import tables
from throughline.report.render.tables import Table
from throughline.spec.program import DECIDES
from throughline.versions import MARK, base

CITATION = Path(__file__).parents[4] / "CITATION.cff"
BUILT_FOR = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "horovod_nccl": "Horovod's NCCL"}
"""Map a record's keys of the libraries behind a framework to their names."""
NO_PACKAGES = ("gloo", "controller", "xla")
"""Keys of a record's framework that are no package of it."""
LEFT_OUT = frozenset({"packages", "code", "digest"})
"""Parts of an environment that only the records have: they are long, or mean nothing to a reader."""
WHERE = "where it is not the same"
Place = tuple[str, str]
"""A benchmark and a framework."""


def setup(summary: Summary, devices: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Say how one benchmark was set up: names and texts. devices: the names of those that its cells ran on."""
    optimizer, steps, job, data = summary.optimizer, summary.steps, summary.job, summary.data
    timed = f"{steps.warmup} to warm up, then {steps.timed} timed"
    timed += f", in at most {steps.max_total_seconds:g} s" if steps.max_total_seconds is not None else ""
    if job:
        timed = f"a whole job: {job.samples:,} samples in each of {job.epochs} epochs; all steps are timed"
    cells = [cell for series in summary.frameworks.values() for cell in series.values()]
    fewest = min((cell.n_ok for cell in cells if cell.n_ok), default=0)
    sure = percent(statistics.range_coverage(fewest), 1)
    course = f" ({optimizer.schedule.words})" if optimizer.schedule.changes else ""
    rates = f"learning rate {optimizer.learning_rate:g}{course}, weight decay {optimizer.weight_decay:g}"
    rates += f", momentum {optimizer.momentum:g}" if optimizer.name == "sgd" else ""
    built = [model for model in (summary.settings or {}).values() if model]
    counts = {model["parameters"] for model in built if model.get("parameters")}
    size = ", ".join(f"{count:,} parameters" for count in sorted(counts))
    has_dropout = not built or any(model.get("dropout") for model in built)
    dumps = f" of {', '.join(data.dumps.values())}" if data and data.dumps else ""
    read = f"{data.rows:,} rows in all shards{dumps}" if data else "synthetic batches, nothing is read"
    ours = summary.model != DECIDES  # a program alone knows what it trains with
    trains = ours and workloads.trains(summary.model)
    rows = {
        "model": ", ".join(part for part in (summary.model, workload.setup(summary), size) if part),
        "device": " and ".join(devices) or (summary.device.name if summary.device else "n/a"),
        "steps": timed,
        "repeats": f"{max((cell.n for cell in cells), default=0)} per cell, interleaved",
        "range": sure and f"of {fewest} valid repeats, the fewest: holds the true median with {sure} probability",
        "optimizer": f"{optimizer.name}, {rates}" if trains else "",
        "dropout": f"{summary.options.dropout:g}" if ours and has_dropout else "",
        "data": read if trains else "",
    }
    return [(name, text) for name, text in rows.items() if text]


def programs(runs: Iterable[RunRecord]) -> Table | None:
    """Return a row for each program and state of its code: its command, and where the times of its steps come from."""
    rows = {}
    for run in runs:
        if program := run.spec.program:
            name, stated = run.spec.framework, run.environment.get("framework")
            row = {
                "program": name,
                "command": words.shown(program.command),
                "starts once for every": program.start,
                "times of its steps": program.timing.words,
                "code": (stated or {}).get(name, "n/a"),
            }
            rows[tuple(row.values())] = row
    return tables.texts(list(rows.values()), style="words")


def environments(summaries: Iterable[Summary], runs: Iterable[RunRecord] = ()) -> Table | None:
    """Return a row for each fact of the environments; None without any fact. runs: those whose links are facts too.

    A fact that is not the same in all of them has a row for each value, which says where it holds.
    """
    places: dict[Place, None] = {}
    facts: dict[str, dict[str, dict[Place, None]]] = {}
    largest = {(run.spec.benchmark, run.spec.framework): run for run in sorted(runs, key=lambda run: run.spec.topology)}
    for summary in summaries:
        for framework, environment in summary.environment.items():
            place = summary.benchmark, framework
            places[place] = None
            links = _links(largest[place]).items() if place in largest else ()
            for key, text in (*_facts(summary, environment), *links):
                facts.setdefault(key, {}).setdefault(text, {})[place] = None
    rows = [
        {"fact": _name(key), "value": text}
        | ({WHERE: in_groups(held, ":") if len(held) < len(places) else ""} if len(places) > 1 else {})
        for key, values in facts.items()
        for text, held in values.items()
    ]
    return tables.texts(rows, style="facts")


def _facts(summary: Summary, environment: Any) -> Iterator[tuple[str, str]]:
    """Yield the facts of an environment as texts, and what is not known of it, grouped by the reason.

    The versions of a framework's packages are in the table of frameworks.
    """
    stated = environment if isinstance(environment, Mapping) else {}
    inner = {key: value for key, value in stated.items() if key not in LEFT_OUT}
    device = summary.device.model_dump(exclude={"kind"}) if summary.device else {}
    unknown: dict[str, dict[str, None]] = {}
    for key, reason in (inner.pop("reasons", None) or {}).items():
        if not key.startswith("framework."):
            unknown.setdefault(str(reason), {})[_name(key)] = None
    for key, value in flat({"device": device, **inner}).items():
        part, _, name = key.partition(".")
        if value not in (None, "") and (part != "framework" or name in NO_PACKAGES):
            yield key, _text(key, value)
    yield from (("not known", f"{', '.join(names)}: {reason}") for reason, names in unknown.items())


def _links(run: RunRecord) -> dict[str, str]:
    """Return the links of a run's nodes and GPUs from its telemetry, and the rates of the GPU's datasheet."""
    gpu, nodes = gpus.find(run.device.name) if run.device else None, run.hardware or []
    texts = {}
    if gpu and gpu.memory_bytes_per_s:
        texts["memory bandwidth of a GPU"] = f"{gpu.memory_bytes_per_s / 1e9:g} GB/s (datasheet)"
    if gpu and gpu.nvlink_bytes_per_s:
        texts["NVLink of a GPU"] = f"{gpu.nvlink_bytes_per_s * 2 / 1e9:g} GB/s, both directions together (datasheet)"
    links = [link for node in nodes for card in node.devices if isinstance(link := card.get("nvlinks"), list)]
    states = [f"{sum(link)} of {len(link)} are active" for link in links]
    texts |= {"NVLinks": _counted(states)} if states else {}
    names: dict[Literal["network", "infiniband"], str] = {
        "network": "network interfaces",
        "infiniband": "InfiniBand and RoCE",
    }
    for fact, name in names.items():
        ports = [
            ", ".join(part for part in (each.name, speed, each.link_layer, each.state) if part)
            for node in nodes
            for each in node.interfaces(fact)
            for speed in ["speed not stated" if each.gbit_per_s is None else f"{each.gbit_per_s:g} Gbit/s"]
        ]
        texts |= {name: _counted(ports)} if ports else {}
    return texts


def _counted(texts: Sequence[str]) -> str:
    """Return each text once, with how often it stands there."""
    return "; ".join(f"{texts.count(text)} × ({text})" for text in dict.fromkeys(texts))


def _name(key: str) -> str:
    """Return a key in words; names of packages and variables stay as they are."""
    part, _, rest = key.removesuffix("_bytes").partition(".")
    return rest if part in ("framework", "variables") else f"{part} {rest}".strip().replace(".", " ").replace("_", " ")


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("memory_bytes") and isinstance(value, int):
        return f"{value / 2**30:.1f} GiB"
    if key == "gpus" and isinstance(value, list):
        cards = [", ".join(f"{name} {fact}" for name, fact in card.items() if fact is not None) for card in value]
        return _counted(cards)
    return str(value)[:12] if key == "commit" else str(value)


def frameworks(summaries: Iterable[Summary]) -> Table | None:
    """Return a row for each framework, workload and version: its environment, and the source of its models."""
    rows = {}
    for summary in summaries:
        folder = workloads.folder(summary.model)
        for name, environment in summary.environment.items():
            if folder and base(name) in every_framework.NAMES:
                stated = (environment.get("framework") if isinstance(environment, Mapping) else None) or {}
                packages = stated.keys() - {*BUILT_FOR, *NO_PACKAGES, "driver"}
                built = [f"{words} {stated[key]}" for key, words in BUILT_FOR.items() if stated.get(key)]
                built = [words for words in built if not words.endswith("not built")]
                source = reference.source(folder, every_framework.of(name).library)
                row = {
                    "framework": name,
                    "version": ", ".join(f"{key} {value}" for key, value in stated.items() if value and key in packages)
                    or "n/a",
                    "built for": ", ".join(built) or ("CPUs" if stated else "n/a"),
                    "environment": _pins(name),
                    "source of its models": source or f"see docs/reference/workloads.md#{folder}",
                }
                rows[tuple(row.values())] = row
    return tables.texts(list(rows.values()), style="words")


def _pins(name: str) -> str:
    """Return the file with the pins of a framework. The file of a version may be on another machine."""
    if MARK in name:
        return f"envs/{name}.txt"
    environment = recipe.read(name)
    return f"envs/{environment.framework}.txt" if environment.python else "the workflow's, envs/torch.txt"


def data(path: Path) -> list[tuple[str, str]]:
    """Return the facts of a manifest; those of a text corpus have names of their own. If it cannot be read: why."""
    name = "manifest", "/".join(path.parts[-3:])
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parameters = flat(content.get("parameters") or {})
        plain = [(key.replace("_", " "), str(value)) for key, value in content.items() if isinstance(value, str | int)]
        known = corpus_manifest.facts(content) if "vocabulary" in content else plain
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return [name, ("not readable", why)]
    texts = (
        f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}" for key, value in parameters.items()
    )
    return [name, *known, ("parameters", ", ".join(texts))]


def span(runs: Iterable[RunRecord]) -> str | None:
    """Return the first start and the last end (UTC) of these runs as text; None if no record says them."""
    windows = [run.times for run in runs if run.times]
    if not windows:
        return None
    first, last = min(start for start, _ in windows), max(end for _, end in windows)
    form = "%H:%M" if first.date() == last.date() else "%Y-%m-%d %H:%M"
    return f"{first:%Y-%m-%d %H:%M} to {last:{form}} UTC"


def commits(runs: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Return every commit that runs were measured with, these runs in words, and whether some ran with changes that
    were not committed. Runs without a known commit are left out."""
    known = (run for run in runs if run.environment.get("commit"))
    return [
        {
            "commit": commit,
            "runs": in_groups(((run.spec.benchmark, run.spec.framework) for run in measured), ":"),
            "changed": any(run.environment.get("tree_clean") is False for run in measured),
        }
        for commit, measured in grouped(known, lambda run: str(run.environment["commit"])).items()
    ]


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
