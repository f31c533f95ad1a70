"""The largest batch per device that fits: doubling until an allocator refuses, then bisection.

Every try is a run of its own, of a few steps in fresh processes: what one left behind in an allocator must not decide
the next. Nothing is timed here. Memory is taken to grow with the batch; the answer also names the smallest batch that
was refused.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from throughline import records
from throughline.files import UserError, now
from throughline.launch import launch, machine
from throughline.launch.job import Job, lacks
from throughline.study.benchmark import Steps
from throughline.study.config import Config
from throughline.study.runs import RunSpec
from throughline.study.targets import SEARCH
from throughline.topology import Topology

STEPS = Steps(warmup=1, timed=2)
"""The first step ends with the optimizer's states, so that from the second on everything is held at once."""
AT_MOST = 2**20
"""Larger batches are not tried."""
FINENESS = 64
"""The search ends where the gap between fitting and refused is 1, or this fraction of the batch that fits."""
NO_LIMIT = "on a CPU nothing refuses before the whole machine is full: set options.memory_limit_mb"


def requests(config: Config, specs: Sequence[RunSpec]) -> dict[str, list[RunSpec]]:
    """results/<benchmark>/max_batch_<precision>.json -> what to search with, a specification per framework.

    Its topology is the largest one on a single node, since exchanging gradients takes memory too (a single replica
    where all have several nodes); the search starts from the smallest batch that the benchmark asks for.
    """
    requested: dict[str, list[RunSpec]] = {}
    for name, block in config.benchmarks.items():
        if "max_batch" not in block.extras:
            continue
        worlds = [topology.world for text in block.topologies if (topology := Topology.parse(text)).nodes == 1]
        largest = f"1n{max(worlds, default=block.options.tensor)}g"
        change = {"topology": largest, "steps": STEPS, "job": None, "scaling": "weak"}
        for precision, batches in block.batch.items():
            wanted = (name, precision, min(batches), block.topologies[0], 1)
            requested[SEARCH.format(benchmark=name, precision=precision)] = [
                spec.model_copy(update={**change, "hosts": None if block.hosts == "simulated" else spec.hosts})
                for spec in specs
                if (spec.benchmark, spec.precision, spec.batch_per_device, spec.topology, spec.repeat) == wanted
            ]
    return requested


def search(start: int, fits: Callable[[int], bool], at_most: int = AT_MOST) -> tuple[int | None, int | None]:
    """(the largest batch found to fit, the smallest found not to); None where there is none of the kind."""
    low, high = 0, None
    batch = min(start, at_most)
    while high is None or high - low > max(1, low // FINENESS):
        if fits(batch):
            low = batch
            if high is None and low == at_most:
                break
        else:
            high = batch
        batch = min(2 * low, at_most) if high is None else (low + high) // 2
    return low or None, high


def find(
    specs: Sequence[RunSpec], manifest: Path | None, pythons: Mapping[str, str], folder: Path, hosts: Sequence[str] = ()
) -> dict[str, Any]:
    """The content of max_batch_<precision>.json: a search per framework of `specs`; records and logs go to `folder`.

    UserError where a try fails for another reason than memory: then nothing is known of larger batches.
    """
    started, first = now(), specs[0]
    searches = [_Search(spec, manifest, pythons.get(spec.framework, sys.executable), folder, hosts) for spec in specs]
    return {
        "schema": records.SCHEMA,
        "benchmark": first.benchmark,
        "model": first.model,
        **first.parameters,
        "precision": first.precision,
        "topology": first.topology,
        "steps": STEPS.warmup + STEPS.timed,
        "memory_limit_mb": first.options.memory_limit_mb,
        "tried_at_most": AT_MOST,
        "frameworks": {one.spec.framework: one.run() for one in searches},
        "started": started,
        "ended": now(),
    }


class _UnsupportedError(Exception):
    """The framework cannot do this here, whatever the batch."""


@dataclass
class _Search:
    """One framework's tries, in their order."""

    spec: RunSpec
    manifest: Path | None
    python: str
    folder: Path
    hosts: Sequence[str]
    tries: list[dict[str, Any]] = field(default_factory=list)
    device: dict[str, Any] | None = None

    def run(self) -> dict[str, Any]:
        """The search's entry in the result."""
        status, largest, refused = "unsupported", None, None
        try:
            if lacking := lacks(self.spec.framework, self.python):
                raise _UnsupportedError(lacking)
            if self._is_unlimited():
                raise _UnsupportedError(NO_LIMIT)
            largest, refused = search(self.spec.batch_per_device, self._fits)
            status = "ok" if largest else "oom"
            reason = None if largest else f"not even one sample fits: {self.tries[-1]['reason']}"
        except _UnsupportedError as error:
            reason = str(error)
        print(f"{self.spec.framework}: {f'batch {largest}' if largest else f'{status}: {reason}'}")
        peaks = {one["batch_per_device"]: one["peak_memory_bytes"] for one in self.tries}
        return {
            "status": status,
            "reason": reason,
            "largest_batch_per_device": largest,
            "smallest_out_of_memory": refused,
            "peak_memory_bytes": peaks.get(largest),
            "device": self.device,
            "tries": self.tries,
        }

    def _is_unlimited(self) -> bool:
        if self.spec.options.memory_limit_mb is not None or self.spec.device == "cuda":
            return False
        return self.spec.device == "cpu" or machine.gpus(self.spec.framework, self.python, os.environ).count == 0

    def _fits(self, batch: int) -> bool:
        framework = self.spec.framework
        spec = self.spec.model_copy(update={"batch_per_device": batch})
        place = self.folder / framework / f"batch_{batch}.json"
        log, part_of = place.with_suffix(".log"), f"{self.folder}.json"
        job = Job(spec, place, log, self.manifest, self.python, hosts=self.hosts, telemetry=False, part_of=part_of)
        try:
            record = launch.run(job)
        except UserError as error:
            raise UserError(
                f"batch {batch} of {framework} failed for another reason than memory: {error.what}",
                why=error.why,
                next_step=f"read {job.log}; run snakemake again, the search begins anew",
            ) from None
        if record["status"] == "unsupported":
            raise _UnsupportedError(record["reason"])
        self.device = record["device"]
        # `invalid` speaks of losses, and a run that ended had the memory for them.
        status = "oom" if record["status"] == "oom" else "fits"
        reason = record["reason"] if status == "oom" else None
        peak = record["peak_memory_bytes"]
        self.tries.append({"batch_per_device": batch, "status": status, "reason": reason, "peak_memory_bytes": peak})
        print(f"{framework}, batch {batch}: {status}")
        return status == "fits"
