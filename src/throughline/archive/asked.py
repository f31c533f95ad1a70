"""What an archive should hold by the configuration in its records: the repeats of every cell, and the cells.

The records of runs keep the configuration that they were made with. So a run that was left out is found, even if
everything was derived again without it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from throughline.archive.contents import NAME, Contents
from throughline.archive.differences import Difference, Found, between
from throughline.records import RunRecord
from throughline.study.config import block_name
from throughline.study.runs import manifest

RUN = re.compile(r"(?P<cell>results/[^/]+/(?P<size>bz[^/]+)/(?P<framework>[^/]+)/(?P<topology>[^/]+))/run(\d+)\.json")


def check(contents: Contents, runs: Mapping[str, RunRecord]) -> Found:
    """Yield runs that were left out, and another configuration than that of the records.

    runs: all records of the benchmarks, by their names.
    """
    latest = _latest(runs)
    yield from between(NAME, contents.configuration, latest and latest.configuration, "configuration")
    for benchmark, made in contents.benchmarks.items():
        own = {name: run for name, run in runs.items() if run.spec.benchmark == benchmark}
        block = _block(own, benchmark)
        asked = block.get("repeats")
        if isinstance(asked, int) and asked != made.repeats:
            what = f"benchmarks.{benchmark}.repeats"
            yield Difference(NAME, what, f"it states {made.repeats}, and the latest record was made for {asked}")
        yield from _gaps([name for name in contents.files if name.startswith(f"results/{benchmark}/")], made.repeats)


def _latest(runs: Mapping[str, RunRecord]) -> RunRecord | None:
    """Return the latest record with a configuration, as pack.py takes it; of two at one time the first by name."""
    told = [run for _, run in sorted(runs.items(), key=lambda item: Path(item[0])) if run.configuration]
    return max(told, key=lambda run: run.started, default=None)


def _block(runs: Mapping[str, RunRecord], benchmark: str) -> dict[str, Any]:
    """Return a benchmark's part of the configuration of its latest record; empty if no record has one."""
    latest = _latest(runs)
    blocks = latest.configuration.get("benchmarks") if latest and latest.configuration else None
    block = blocks.get(block_name(benchmark)) if isinstance(blocks, dict) else None
    return block if isinstance(block, dict) else {}


def _gaps(names: Iterable[str], repeats: int) -> Found:
    """Yield repeats of a cell that the archive lacks. Every repeat has a record, whatever its outcome was."""
    cells = defaultdict[str, set[int]](set)
    for name in names:
        if found := RUN.fullmatch(name):
            cells[found["cell"]].add(int(found[5]))
    for cell, numbers in cells.items():
        every = range(1, max(repeats, *numbers) + 1)  # as large as somebody likes
        if lacking := [*islice((number for number in every if number not in numbers), 10)]:
            told = ", ".join(f"run{number}" for number in lacking)
            yield Difference(cell, told, f"the archive lacks this repeat, and has {len(numbers)}")


def absent(contents: Contents, runs: Mapping[str, RunRecord]) -> Found:
    """Yield what the configuration of the records asks for and has no record of.

    The configuration may have become smaller since, so this is a doubt.
    """
    for benchmark in contents.benchmarks:
        own = {name: run for name, run in runs.items() if run.spec.benchmark == benchmark}
        block, there = _block(own, benchmark), [found for name in own if (found := RUN.fullmatch(name))]
        asked = {
            "framework": _texts(block.get("frameworks")),
            "topology": _texts(block.get("topologies")),
            "size": _sizes(block.get("batch")),
        }
        for kind, names in asked.items():
            known = {found[kind] for found in there}
            for name in names:
                if there and name not in known:
                    told = f"the configuration asks for this {kind}, and no record has it"
                    yield Difference(f"results/{benchmark}", name, told)


def _texts(value: Any) -> Sequence[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _sizes(value: Any) -> Sequence[str]:
    """Return the names of the cells of a benchmark, as a configuration has them: batch sizes by precision."""
    pairs = value.items() if isinstance(value, dict) else ()
    return [f"bz{batch}_{name}" for name, batches in pairs if isinstance(batches, list) for batch in batches]


def rows(name: str, run: RunRecord, manifests: Mapping[str, Any]) -> Found:
    """Yield another number of rows than the manifest of a run's data has. manifests: those of the archive, by name."""
    told = manifests.get(manifest(run.spec) or "")
    if not run.data or not isinstance(told, dict) or told.get("content_digest") != run.data.content_digest:
        return  # the data were made again since
    shards = told.get("shards")
    counts = [shard.get("rows") for shard in shards if isinstance(shard, dict)] if isinstance(shards, list) else []
    if counts and all(isinstance(count, int) for count in counts):  # a shard of tokens has no rows of its own
        yield from between(name, run.data.rows, sum(counts), "data.rows")
