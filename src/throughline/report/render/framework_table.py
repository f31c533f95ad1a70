"""The table of frameworks: what was measured, in which version and environment, and where its models come from."""

from collections.abc import Iterable, Mapping
from typing import Any

from throughline import frameworks, workloads
from throughline.frameworks import reference
from throughline.frameworks.description import FEATURES
from throughline.installation import recipe
from throughline.records import Summary
from throughline.report.render import tables
from throughline.report.render.tables import Table
from throughline.versions import MARK, base

HEADER = ["framework", "version", "built for", "environment", "source of its models", "features"]
BUILT_FOR = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "horovod_nccl": "Horovod's NCCL"}
"""Map a record's keys of the libraries behind a framework to their names."""
NO_PACKAGES = frozenset({"driver", "gloo", "controller", "xla"})
"""Keys of a record's framework that are no package of it."""


def table(summaries: Iterable[Summary]) -> Table | None:
    """Return a row for each framework, workload and version; None without any."""
    rows = {}
    for summary in summaries:
        folder = workloads.folder(summary.model)
        for name, environment in summary.environment.items():
            if folder and base(name) in frameworks.NAMES:
                stated = environment.get("framework") if isinstance(environment, Mapping) else None
                row = _row(name, folder, summary.model, stated or {})
                rows[tuple(row)] = row
    return tables.texts(HEADER, list(rows.values()), style="words") if rows else None


def _row(name: str, folder: str, model: str, stated: Mapping[str, Any]) -> list[str]:
    framework, has = frameworks.of(name), frameworks.features(name, model)
    versions = [f"{key} {value}" for key, value in stated.items() if value and key not in (*BUILT_FOR, *NO_PACKAGES)]
    built = [f"{words} {stated[key]}" for key, words in BUILT_FOR.items() if stated.get(key)]
    built = [words for words in built if not words.endswith("not built")]
    source = reference.source(folder, framework.library)
    return [
        name,
        ", ".join(versions) or "n/a",
        ", ".join(built) or ("CPUs" if stated else "n/a"),
        _pins(name),
        source or f"see docs/workloads.md#{folder}",
        ", ".join(key for key in FEATURES if key in has),
    ]


def _pins(name: str) -> str:
    """Return the file with the pins of a framework. The file of a version may be on another machine."""
    if MARK in name:
        return f"envs/{name}.txt"
    environment = recipe.read(name)
    return f"envs/{environment.framework}.txt" if environment.python else "the workflow's, envs/torch.txt"
