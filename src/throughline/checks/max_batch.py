"""Search the largest batch per device that fits in memory, or the largest number of classes.

The search doubles the size until an allocator refuses, and then bisects. Every try is a separate run of a few steps in
new processes, so that memory that an earlier try left in an allocator cannot change the result. Nothing is timed here.
We assume that a larger size always needs more memory. The result also names the smallest size that was refused.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from throughline import gpus, records, workloads
from throughline.files import UserError, now
from throughline.launch import launcher, machine
from throughline.launch.request import RunRequest, lacks_environment
from throughline.spec import RunSpec, Steps, Topology, values
from throughline.study.config import Config
from throughline.study.targets import SEARCH

STEPS = Steps(warmup=1, timed=2)
"""The steps of a try. The first one creates the optimizer's states; from the second on, everything is in memory."""
AT_MOST = 2**20
"""The largest batch that is tried. Another quantity is tried up to this many times the benchmark's own value."""
FINENESS = 64
"""The search ends when the smallest refused size is above the largest one that fits by 1, or by 1/FINENESS of that."""
FILLED = 0.9
"""The share of the memory that the first try is predicted to fill, if the memory can be predicted."""
BATCH = "batch"
"""The quantity that is searched by default."""
NO_LIMIT = "on a CPU memory is refused only when the whole machine is full: set options.memory_limit_mb"


def requests(config: Config, specs: Sequence[RunSpec]) -> dict[str, list[RunSpec]]:
    """Map each results/<benchmark>/max_<quantity>_<precision>.json to the specifications that its search starts from.

    There is one for each framework, with the smallest batch. The topology is the largest one with a single node,
    because the exchange of gradients needs memory too; or a single replica, if there is none.
    """
    requested: dict[str, list[RunSpec]] = {}
    for name, block in config.benchmarks.items():
        worlds = [topology.world for text in block.topologies if (topology := Topology.parse(text)).nodes == 1]
        largest = Topology(1, max(worlds, default=block.options.tensor_parallel))
        quantities = [extra.removeprefix("max_") for extra in block.extras if extra.startswith("max_")]
        for quantity, (precision, batches) in product(quantities, block.batch_sizes.items()):
            wanted = (name, precision, min(batches), Topology.parse(block.topologies[0]), 1)
            requested[SEARCH.format(benchmark=name, quantity=quantity, precision=precision)] = [
                replace(
                    _with_few_micro_batches(spec),
                    topology=largest,
                    steps=STEPS,
                    job=None,
                    scaling="weak",
                    hosts=None if block.hosts == "simulated" else spec.hosts,
                )
                for spec in specs
                if (spec.benchmark, spec.precision, spec.batch, spec.topology, spec.repeat) == wanted
                and not spec.program
            ]
    return requested


def _with_few_micro_batches(spec: RunSpec) -> RunSpec:
    """Return what a try runs if the block states a global batch: two micro-batches need as much memory as all."""
    few = replace(spec.options, gradient_accumulation=min(spec.options.gradient_accumulation, 2))
    return spec if spec.global_batch is None else replace(spec, global_batch=None, options=few)


def search(start: int, fits: Callable[[int], bool], at_most: int = AT_MOST) -> tuple[int | None, int | None]:
    """Return the largest size that fits, and the smallest tried one that does not; None if there is no such size."""
    low, high = 0, None
    size = min(start, at_most)
    while high is None or high - low > max(1, low // FINENESS):
        if fits(size):
            low = size
            if high is None and low == at_most:
                break
        else:
            high = size
        size = min(2 * low, at_most) if high is None else (low + high) // 2
    return low or None, high


def find(
    specs: Sequence[RunSpec],
    manifest: Path | None,
    pythons: Mapping[str, str],
    folder: Path,
    hosts: Sequence[str] = (),
    quantity: str = BATCH,
) -> dict[str, Any]:
    """Search with each framework of `specs` and return the content of max_<quantity>_<precision>.json.

    Records and logs are written to `folder`. Raises UserError if a try fails for another reason than memory.
    """
    started, first = now(), specs[0]
    python = {spec.framework: pythons.get(spec.framework, sys.executable) for spec in specs}
    searches = [_Search(spec, manifest, python[spec.framework], folder, hosts, quantity) for spec in specs]
    return {
        "schema": records.SCHEMA,
        "benchmark": first.benchmark,
        "model": first.model,
        **values(first.parameters),
        "precision": first.precision,
        "topology": str(first.topology),
        "steps": STEPS.warmup + STEPS.timed,
        "memory_limit_mb": first.options.memory_limit_mb,
        **({} if quantity == BATCH else {"quantity": quantity}),
        "tried_at_most": searches[0].at_most,
        "frameworks": {search.spec.framework: search.run() for search in searches},
        "started": started,
        "ended": now(),
    }


class _UnsupportedError(Exception):
    """The framework cannot train this here with any batch."""


@dataclass
class _Search:
    spec: RunSpec
    manifest: Path | None
    python: str
    folder: Path
    hosts: Sequence[str]
    quantity: str
    tries: list[dict[str, Any]] = field(default_factory=list)
    device: dict[str, Any] | None = None

    @property
    def start(self) -> int:
        """The size that the search starts from: the largest batch that is predicted to fit, or the benchmark's own."""
        if self.quantity != BATCH:
            return int(getattr(self.spec.parameters, self.quantity))
        return self._predicted() or self.spec.batch_size

    def _predicted(self) -> int | None:
        """Return the batch that is predicted to fill FILLED of the memory; None if that cannot be told."""
        limit = self.spec.options.memory_limit_mb
        has = limit << 20 if limit is not None else gpus.smallest_here()[1]
        on_gpu = limit is None

        def fits(batch: int) -> bool:
            memory = workloads.predicted_memory(self.at(batch), on_gpu)
            return memory is not None and has is not None and memory.peak_bytes <= FILLED * has

        return search(self.spec.batch_size, fits)[0]

    @property
    def at_most(self) -> int:
        return AT_MOST if self.quantity == BATCH else AT_MOST * self.start

    def at(self, size: int) -> RunSpec:
        """Return the specification of a run of this size."""
        if self.quantity == BATCH:
            return replace(self.spec, batch=size)
        return replace(self.spec, parameters=replace(self.spec.parameters, **{self.quantity: size}))

    def run(self) -> dict[str, Any]:
        """Search, and return this framework's entry in the result."""
        status, largest, refused = "unsupported", None, None
        try:
            if lacking := lacks_environment(self.spec, self.python):
                raise _UnsupportedError(lacking)
            if self._is_unlimited():
                raise _UnsupportedError(NO_LIMIT)
            largest, refused = search(self.start, self._fits, self.at_most)
            status = "ok" if largest else "oom"
            unit = "sample" if self.quantity == BATCH else self.quantity
            reason = None if largest else f"not even one {unit} fits: {self.tries[-1]['reason']}"
        except _UnsupportedError as error:
            reason = str(error)
        print(f"{self.spec.framework}: {f'{self.quantity} {largest}' if largest else f'{status}: {reason}'}")
        key = "batch" if self.quantity == BATCH else "size"
        peaks = {attempt[key]: attempt["peak_memory_bytes"] for attempt in self.tries}
        batch = largest if self.quantity == BATCH else self.spec.batch if largest else None
        return {
            "status": status,
            "reason": reason,
            "largest_batch_per_device": batch,
            **({} if self.quantity == BATCH else {"largest_size": largest}),
            "smallest_out_of_memory": refused,
            "peak_memory_bytes": peaks.get(largest),
            "device": self.device,
            "tries": self.tries,
        }

    def _is_unlimited(self) -> bool:
        spec = self.spec
        if spec.options.memory_limit_mb is not None or spec.device not in ("auto", "cpu"):
            return False
        return machine.gpus(spec.framework, self.python, os.environ, spec.device).count == 0

    def _fits(self, size: int) -> bool:
        framework, quantity = self.spec.framework, self.quantity
        spec = self.at(size)
        path = self.folder / framework / f"{quantity}_{size}.json"
        request = RunRequest(spec, path, path.with_suffix(".log"), self.manifest, self.python, hosts=self.hosts)
        request = replace(request, telemetry=False, part_of=f"{self.folder}.json")
        try:
            record = launcher.run(request)
        except launcher.Stopped:
            raise
        except UserError as error:
            raise UserError(
                f"{quantity} {size} of {framework} failed for another reason than memory: {error.what}",
                why=error.why,
                next_step=f"read {request.log}; run snakemake again, the search begins anew",
            ) from None
        if record["status"] == "unsupported":
            raise _UnsupportedError(record["reason"])
        self.device = record["device"]
        # `invalid` is a statement about losses: such a run has ended, so it had enough memory.
        status = "oom" if record["status"] == "oom" else "fits"
        reason = record["reason"] if status == "oom" else None
        peak = record["peak_memory_bytes"]
        tried = {"batch": size} if quantity == BATCH else {"batch": spec.batch, "size": size}
        self.tries.append({**tried, "status": status, "reason": reason, "peak_memory_bytes": peak})
        print(f"{framework}, {quantity} {size}: {status}")
        return status == "fits"
