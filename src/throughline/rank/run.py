"""One rank of one run (`Run`): its framework, its workload, its data, and a step. It measures nothing.

The order is the same in every framework: join, device, model, data, optimizer. Both the measured loop (measurement.py)
and a convergence check (convergence.py) use it. Standard library, numpy, h5py and the framework only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from throughline import frameworks, workloads
from throughline.frameworks.rank import load
from throughline.messages import LaunchPlan
from throughline.rank import binding, report
from throughline.rank.data import Decoder, Loader, Manifest, batches, held_out, synthetic_seeds
from throughline.rank.heartbeat import Heart
from throughline.spec import EpochsJob

if TYPE_CHECKING:
    from throughline.rank.updates import Expected


STAGES = ("join", "device", "model", "data", "optimizer")
"""What a rank does before its first step, in this order. A call trains nothing, so it needs the first three only."""


class Run:
    """One rank of one run, with its framework, workload and data."""

    def __init__(self, plan: LaunchPlan, rank: int, heart: Heart) -> None:
        self.plan, self.rank, self.world, self.heart = plan, rank, plan.world, heart
        asked = frameworks.specification(plan.spec)
        self.spec = frameworks.resolved(asked, plan.kind)
        self.chosen = frameworks.reasons(asked, plan.kind)
        if self.spec.binding == "numa":
            binding.to_numa_node(plan.kind, rank % plan.devices)
        self.size, self.options = self.spec.size, self.spec.options
        self.job, self.steps = self.spec.job, self.spec.timed
        self.replica = rank // (self.world // self.size.replicas)
        self.workload = workloads.of(self.spec.model)
        self.trains = self.workload.trains
        self.reads_alone = self.options.data == "reading"
        self.manifest = self.open_manifest() if plan.manifest else None
        self.facts = self.workload.facts(self.manifest.content if self.manifest else None)
        self.loader: Loader | None = None
        self.counts: list[tuple[int, ...]] = []
        self.rates = self.spec.optimizer.rates() if self.trains else None
        self.steps_made = 0
        self.expected: Expected | None = None
        frameworks.refuse(self.spec)
        self.framework = load(self.spec.framework)(self.spec, rank, rank % plan.devices, self.world, plan.kind)

    def build(self) -> None:
        """Do everything that comes before the first step."""
        ours = {"model": self._model, "data": self._open}
        for name in STAGES[:2] if self.reads_alone else STAGES if self.trains else STAGES[:3]:
            self.heart.phase(name)
            (ours.get(name) or getattr(self.framework, name))()

    def _model(self) -> None:
        report.limit_memory(self.options.memory_limit_mb)
        self.framework.model(self.facts)
        if self.plan.weights:
            import numpy as np

            with np.load(self.plan.weights) as file:
                weights = dict(file)
            if self.plan.updates is None:
                self.framework.load(weights)
                return
            from throughline.rank.updates import Expected

            with np.load(self.plan.updates) as file:
                self.expected = Expected(self.framework, weights, file)

    def _open(self) -> None:
        self.opened = time.monotonic()
        if self.job:
            self._open_job(self.job)
            return
        count, seed = self.size.batch_per_replica, self.spec.seed
        if self.manifest:
            training = self.plan.convergence
            done = training.resume.step if training and training.resume else 0
            self.loader = self.new_loader(done=done * self.options.gradient_accumulation)
        else:
            seeds = synthetic_seeds(seed, self.replica)
            synthetic = [self.workload.synthetic(count, self.spec, batch_seed) for batch_seed in seeds]
            if any(figure.of_counts for figure in self.workload.figures):
                self.counts += map(self.workload.counts, synthetic)
            resident = [self.framework.deliver(self.framework.data(arrays)) for arrays in synthetic]
            self.resident: Iterator[Any] = itertools.cycle(resident)

    def open_manifest(self) -> Manifest:
        """Return the manifest of the plan, with a new reader of its shards."""
        return Manifest.of_run(self.spec, str(self.plan.manifest))

    def new_loader(self, workers: int | None = None, done: int = 0, ahead: int | None = None) -> Loader:
        """Return a loader of this replica's batches after the first `done`. workers: those of the run by default."""
        assert self.manifest
        count = self.size.batch_per_replica
        source = batches(self.manifest, self.spec.seed, self.replica, self.size.replicas, count)
        source = itertools.islice(source, done, None)
        return Loader(self.decoded(source, workers), self._prepared, ahead or self.manifest.ahead(count))

    def decoded(self, rows: Iterator[Any], workers: int | None = None) -> Iterator[Any]:
        """Return the batches that the workload takes. Other processes, or DALI in this one, decode what needs it."""
        assert self.manifest
        reader, size, workers = self.manifest.reader, self.size.batch_per_replica, workers or self.spec.decoders
        if self.options.image_decoder == "dali" and isinstance(reader, Decoder):
            gpu = self.framework.local_rank if self.plan.kind == "cuda" else None
            return reader.by_dali(rows, size, workers, gpu, gpu is not None and self.framework.takes_from_gpu)
        return self.manifest.decoded(rows, size, workers, self.plan.workflow_python)

    def _open_job(self, job: EpochsJob) -> None:
        """Load all samples at once. The framework divides them among the ranks."""
        seed, ready = self.spec.seed, self.framework.data
        if self.manifest is None:
            training, evaluation = (
                ready(self.workload.synthetic(count, self.spec, batch_seed)) if count else None
                for count, batch_seed in zip((job.samples, job.held_out), synthetic_seeds(seed, 0), strict=False)
            )
        else:
            training = self._prepared(next(batches(self.manifest, seed, 0, 1, job.samples)))
            rows = held_out(self.manifest, job.held_out) if job.held_out else None
            evaluation = rows and ready(self.workload.batch(rows, self.options))
        self.framework.samples(training, evaluation)

    def _prepared(self, rows: Any) -> Any:
        self.counts.append(self.workload.counts(rows))
        return self.framework.data(self.workload.batch(rows, self.options))

    def micro_batches(self) -> list[Any]:
        """Return the micro-batches of one optimizer step, on their way to the device."""
        count = self.options.gradient_accumulation
        if self.loader is None:
            return [next(self.resident) for _ in range(count)]
        return [self.framework.deliver(self.loader.next()) for _ in range(count)]

    def step(self) -> Any:
        """Make one optimizer step and return its loss as a value on the device. Without training, make one call."""
        self.steps_made += 1
        if self.rates:
            self.framework.set_rate(self.rates(self.steps_made))
        return self.framework.step(self.micro_batches()) if self.trains else self.framework.call()

    def settings(self) -> dict[str, Any]:
        """Return the settings of the framework, and those of this loop, which are the same for all frameworks."""
        if not self.trains:
            return self.framework.settings()
        how = self.manifest.reader.how if self.manifest else None
        read = f", {f'{how}, ' if how else ''}prepared {self.loader.ahead} batches ahead" if self.loader else ""
        if self.reads_alone:
            return {"data": ", ".join(filter(None, [self.options.data, how])), "timed_step": "take a batch"}
        ours = f"deliver, forward, backward, {'exchange, ' if self.options.gradient_sync else ''}clip, update"
        return {
            **self.framework.settings(),
            "bucket_mb": self.options.bucket_mb,
            "data": self.options.data + read,
            "timed_step": self.framework.own_step or ours,
            **self.chosen,
        }

    def close(self) -> None:
        if self.loader:
            self.loader.close()
        self.framework.close()
