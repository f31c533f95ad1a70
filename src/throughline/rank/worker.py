"""The measured loop of one rank, the same for every framework. It runs in the framework's own environment.

    python -m throughline.rank.worker WORK/job.json     (variables of the environment give the rank: ranks.py)

The order is the same in every framework: join, device, model, data, optimizer, warm-up, barrier + synchronize + clock,
timed steps, synchronize + clock. The only clock is the monotonic one. Within the window, there is no print, no reading
of a value from the device, no synchronization and no garbage collection. This module imports only the standard library,
numpy, h5py and the framework.
"""

import faulthandler
import gc
import itertools
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import frameworks, messages, workloads
from throughline.frameworks.rank import load
from throughline.messages import Measured, Memory, Network, Order, RankReport, Software, Window
from throughline.processes import die_with_parent
from throughline.rank import binding, convergence, ranks, report
from throughline.rank.data import Decoder, Loader, Manifest, batches, held_out, synthetic_seeds
from throughline.rank.heartbeat import Heart
from throughline.spec import Job
from throughline.spec.job import figures

MATMUL_S = 1.0
NETWORK_S = 2.0
WARMUP_SHARE = 1 / 3
LEAST_WARMUP, LEAST_TIMED = 2, 3
MARGIN = 0.95
"""The share of a time limit (`at_most_s`) that we plan to use, because steps do not all take the same time."""


def warmup_steps(requested: int, timed: int, at_most_s: float, elapsed_s: float, step_s: float) -> int:
    """Return the number of warm-up steps, after LEAST_WARMUP of them.

    elapsed_s: seconds of those steps without the first; step_s: seconds of the last one. It is the requested number if
    all steps fit into `at_most_s`. Otherwise it is what fits into a third of that time.
    """
    budget = at_most_s * MARGIN
    if elapsed_s + (requested - LEAST_WARMUP + timed) * step_s <= budget:
        return max(LEAST_WARMUP, requested)
    more = int(max(0.0, budget * WARMUP_SHARE - elapsed_s) / step_s)
    return max(LEAST_WARMUP, min(requested, LEAST_WARMUP + more))


def timed_steps(requested: int, at_most_s: float, elapsed_s: float, step_s: float) -> int:
    """Return how many timed steps fit into the time that the warm-up left of `at_most_s`.

    It is at least LEAST_TIMED, and at most `requested`.
    """
    fit = int(max(0.0, at_most_s * MARGIN - elapsed_s) / step_s)
    return min(requested, max(LEAST_TIMED, fit))


@dataclass(frozen=True)
class Timed:
    """The raw results of the measured loop.

    losses: of every step, with the warm-up; marks: one at the window's start and one after each timed step;
    cpu_seconds: processor time within the window; skipped, stalled: the skipped steps and the seconds of waiting for
    data before the window.
    """

    losses: list[Any]
    warmup: int
    marks: list[Any]
    window: Window
    cpu_seconds: float
    skipped: int
    stalled: float


Loop = Generator[None, Any, Timed]
"""A generator that receives the loss of each step, as the framework's value on the device."""


class Run:
    """One rank of one run, with its framework, workload and data."""

    def __init__(self, order: Order, rank: int, heart: Heart) -> None:
        self.order, self.rank, self.world, self.heart = order, rank, order.world, heart
        self.spec = frameworks.specification(order.spec)
        if self.spec.binding == "numa":
            binding.to_numa_node(order.kind, rank % order.devices)
        self.size, self.options = self.spec.size, self.spec.options
        self.job, self.steps = self.spec.job, self.spec.timed
        self.replica = rank // (self.world // self.size.replicas)
        self.workload, self.trains = workloads.of(self.spec.model), workloads.of(self.spec.model).trains
        self.manifest = Manifest.of_run(self.spec, order.manifest) if order.manifest else None
        self.facts = self.workload.facts(self.manifest.content if self.manifest else None)
        self.loader: Loader | None = None
        self.counts: list[tuple[int, ...]] = []
        self.rates, self.steps_made = self.spec.optimizer.rates() if self.trains else None, 0
        frameworks.refuse(self.spec)
        framework = load(self.spec.framework)
        self.framework = framework(self.spec, rank, rank % order.devices, self.world, order.kind)

    def build(self) -> None:
        """Do everything that comes before the first step."""
        stages = {
            "join": self.framework.join,
            "device": self.framework.device,
            "model": self._model,
            "data": self._open,
            "optimizer": self.framework.optimizer,
        }
        if not self.trains:
            del stages["data"], stages["optimizer"]
        for name, stage in stages.items():
            self.heart.phase(name)
            stage()

    def _model(self) -> None:
        report.limit_memory(self.options.memory_limit_mb)
        self.framework.model(self.facts)
        if self.order.weights:
            import numpy as np

            with np.load(self.order.weights) as file:
                self.framework.load(dict(file))

    def _open(self) -> None:
        self.opened = time.monotonic()
        if self.job:
            self._open_job(self.job)
            return
        count, seed = self.size.batch_per_replica, self.spec.seed
        if self.manifest:
            training = self.order.convergence
            done = training.resume.step if training and training.resume else 0
            source = batches(self.manifest, seed, self.replica, self.size.replicas, count)
            source = itertools.islice(source, done * self.options.accumulate, None)
            self.loader = Loader(self.decoded(source), self._prepared, self.manifest.ahead(count))
        else:
            made = [self.workload.synthetic(count, self.spec, one) for one in synthetic_seeds(seed, self.replica)]
            if any(one.of_counts for one in self.workload.figures):
                self.counts += map(self.workload.counts, made)
            kept = [self.framework.deliver(self.framework.data(arrays)) for arrays in made]
            self.resident: Iterator[Any] = itertools.cycle(kept)

    def decoded(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Return the batches that the workload takes, from batches of rows.

        Rows that need decoding are decoded by processes in the workflow's environment, or by DALI in this process.
        """
        assert self.manifest
        reader, size, threads = self.manifest.reader, self.size.batch_per_replica, self.spec.threads
        if self.options.decoder == "dali" and isinstance(reader, Decoder):
            gpu = self.framework.local_rank if self.order.kind == "cuda" else None
            return reader.by_dali(rows, size, threads, gpu)
        return self.manifest.decoded(rows, size, threads, self.order.beside)

    def _open_job(self, job: Job) -> None:
        """Load all samples at once. The framework divides them among the ranks."""
        seed, ready = self.spec.seed, self.framework.data
        if self.manifest is None:
            training, evaluation = (
                ready(self.workload.synthetic(count, self.spec, one)) if count else None
                for count, one in zip((job.samples, job.held_out), synthetic_seeds(seed, 0), strict=False)
            )
        else:
            training = self._prepared(next(batches(self.manifest, seed, 0, 1, job.samples)))
            looked_at = held_out(self.manifest, job.held_out) if job.held_out else None
            evaluation = looked_at and ready(self.workload.batch(looked_at, self.options))
        self.framework.samples(training, evaluation)

    def _prepared(self, rows: Any) -> Any:
        self.counts.append(self.workload.counts(rows))
        return self.framework.data(self.workload.batch(rows, self.options))

    def _counted(self, warmup: int, timed: int) -> dict[str, float]:
        """Return the workload's figures from the counts of the window's rows.

        The thread that prepares batches has counted them.
        """
        if not self.counts:
            return {}
        each = self.options.accumulate
        window = self.counts
        if not self.job:  # synthetic batches repeat
            window = [*itertools.islice(itertools.cycle(window), warmup * each, (warmup + timed) * each)]
        sums = tuple(sum(counts) for counts in zip(*window, strict=True))
        samples = self.job.samples if self.job else len(window) * self.size.batch_per_replica
        return self.workload.counted(sums, samples, self.spec)

    def micro_batches(self) -> list[Any]:
        """Return the micro-batches of one optimizer step, on their way to the device."""
        count = self.options.accumulate
        if self.loader is None:
            return [next(self.resident) for _ in range(count)]
        return [self.framework.deliver(self.loader.next()) for _ in range(count)]

    def step(self) -> Any:
        """Make one optimizer step and return its loss as a value on the device.

        For a workload without training, make one call and return None.
        """
        self.steps_made += 1
        if self.rates:
            self.framework.set_rate(self.rates(self.steps_made))
        return self.framework.step(self.micro_batches()) if self.trains else self.framework.call()

    def measure(self) -> Measured:
        """Warm up, time the window, and read all results after it."""
        framework, loop = self.framework, self._loop()
        done = framework.drive(loop, self.micro_batches, self.heart) if framework.own_step else self._drive(loop)
        losses, warmup, timed = done.losses, done.warmup, len(done.marks) - 1
        step_seconds = framework.seconds(done.marks)
        every = framework.losses(losses) if self.trains else None
        memory = Memory(**framework.memory())  # read it now, because the measurements below need memory too
        flops_per_s, why = self._matmul(done.window.seconds)
        return Measured(
            window=done.window,
            cpu_seconds=done.cpu_seconds,
            loader_stall_s=self.loader.stall_s - done.stalled if self.loader else None,
            facts=self.facts,
            counted=self._counted(warmup, timed),
            figures=[*self._figures(), *self._of_job(done.window, sum(step_seconds))],
            step_seconds=step_seconds,
            loss=every[warmup:] if every is not None else None,
            warmup_loss=every[:warmup] if every is not None else None,
            warmup_steps=warmup,
            steps_timed=timed,
            scaler_skipped_steps=framework.skipped() - done.skipped if self.trains else 0,
            memory=memory,
            network=self._network(),
            matmul_flops_per_s=flops_per_s,
            work_reasons={"matmul_flops_per_s": why} if why else {},
        )

    def _drive(self, loop: Loop) -> Timed:
        """Make each step that the loop asks for, and send its loss to the loop."""
        next(loop)
        while True:
            try:
                loop.send(self.step())
            except StopIteration as end:
                timed: Timed = end.value
                return timed

    def _loop(self) -> Loop:
        """The measured loop: count and time the steps, and end when the window has enough of them.

        It is a generator, because in some frameworks the framework makes the steps itself. After each step, the loop
        receives the step's loss.
        """
        framework, heart = self.framework, self.heart
        losses, warmup, timed = yield from self._warm_up()

        heart.phase("training", timed)
        gc.collect()
        gc.freeze()
        gc.disable()
        skipped = framework.skipped() if self.trains else 0
        stalled = self.loader.stall_s if self.loader else 0.0
        framework.barrier()
        framework.sync()
        cpu = time.process_time()
        start = time.monotonic()
        marks = [framework.mark()]
        for done in range(1, timed + 1):
            losses.append((yield))
            marks.append(framework.mark())
            heart.step(done)
        if self.job:
            yield  # wait until the job's last evaluation is done
        framework.sync()
        end = time.monotonic()
        cpu = time.process_time() - cpu
        gc.enable()
        heart.phase("end")
        return Timed(losses, warmup, marks, Window(start, end), cpu, skipped, stalled)

    def _figures(self) -> list[dict[str, Any]]:
        """Return the figures beside throughput that the workload declares and its form measures after the window."""
        declared = {one.name: one for one in self.workload.figures if not (one.of_steps or one.of_counts)}
        return [
            {"name": name, "unit": declared[name].unit, "better": declared[name].better, "at": at, "value": value}
            for name, at, value in (self.framework.form.figures(self.framework.network) if declared else ())
        ]

    def _network(self) -> Network | None:
        """Measure the exchange of a step's gradients alone. Return None if the run does not ask for it."""
        asked = self.spec.network
        asked = self.order.kind == "cuda" if asked is None else asked
        if not (asked and self.framework.exchanges) or self.order.weights:
            return None
        try:
            told = self.framework.exchange_alone(NETWORK_S)
        except Exception as error:  # the run itself has already been measured
            return Network(None, None, None, report.words(error).splitlines()[0])
        if told is None:
            return Network(None, None, None, "the framework does not measure it here, or there was too little memory")
        return Network(len(told[0]), sum(told[0]), told[1], None)

    def _of_job(self, window: Window, training_s: float) -> list[dict[str, Any]]:
        """Return the figures of a whole job; none if the run is not a job."""
        if self.job is None:
            return []
        own = {
            "samples_per_second_without_evaluations": self.job.trained / training_s,
            "preparation": window.start - self.opened,
        }
        return figures({**self.framework.told(), **own})

    def _matmul(self, window_s: float) -> tuple[float | None, str | None]:
        """Return the FLOP/s of a large matrix product on this device, or the reason why it is unknown.

        The measurement takes as long as the window, but at most MATMUL_S.
        """
        if self.order.weights:
            return None, "not measured where frameworks are compared"
        try:
            rate = self.framework.matmul(min(MATMUL_S, window_s))
        except Exception as error:  # the run itself has already been measured
            return None, report.words(error).splitlines()[0]
        return rate, "this framework does not measure it" if rate is None else None

    def _warm_up(self) -> Generator[None, Any, tuple[list[Any], int, int]]:
        """Make the warm-up. Return its losses, its number of steps, and the number of steps to time."""
        framework, cap = self.framework, self.steps.at_most_s
        requested, timed = self.steps.warmup, self.steps.timed
        losses: list[Any] = []
        self.heart.phase("warm-up", requested)

        def steps(until: int) -> Generator[None, Any, float]:
            """Warm up until step `until`, and return the seconds that this took."""
            framework.sync()
            start = time.monotonic()
            while len(losses) < until:
                losses.append((yield))
                self.heart.step(len(losses))
            framework.sync()
            return time.monotonic() - start

        if cap is None:
            yield from steps(requested)
            return losses, requested, timed
        # The first step does not count: some libraries compile in it, and their window would be shorter than that of
        # others. We estimate the speed from the second step. Rank 0 decides the numbers of steps for all ranks.
        yield from steps(LEAST_WARMUP - 1)
        second = yield from steps(LEAST_WARMUP)
        warmup = framework.broadcast(warmup_steps(requested, timed, cap, second, second))
        elapsed = second + (yield from steps(warmup))
        step_s = elapsed / (warmup - 1)
        return losses, warmup, framework.broadcast(timed_steps(timed, cap, elapsed, step_s))

    def settings(self) -> dict[str, Any]:
        """Return the settings of the framework, and those of this loop, which are the same for all frameworks."""
        if not self.trains:
            return self.framework.settings()
        how = self.manifest.reader.how if self.manifest else None
        read = f", {f'{how}, ' if how else ''}prepared {self.loader.ahead} batches ahead" if self.loader else ""
        ours = f"deliver, forward, backward, {'exchange, ' if self.options.exchange else ''}clip, update"
        return {
            **self.framework.settings(),
            "bucket_mb": self.options.bucket_mb,
            "data": self.options.data + read,
            "timed_step": self.framework.own_step or ours,
        }

    def close(self) -> None:
        if self.loader:
            self.loader.close()
        self.framework.close()


def main() -> int:
    die_with_parent(os.getppid(), signal.SIGKILL)
    path = Path(sys.argv[1])
    order, work = messages.read(Order, path), path.parent
    rank, _, world = ranks.of(os.environ)
    here = ranks.folder(work)
    ranks.speak_through(here / f"rank_{rank}.out")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    heart = Heart(here / f"rank_{rank}.beat")
    run: Run | None = None
    try:
        if world != order.world:
            raise RuntimeError(f"{world} ranks were started, and {order.world} belong to this run")
        gc.disable()  # imports and the model stay in memory; looking for garbage takes a sixth of a rank's start-up
        run = Run(order, rank, heart)
        run.build()
        gc.freeze()
        gc.enable()
        trained = convergence.train(run, order.convergence) if order.convergence else None
        measured = None if order.convergence else run.measure()
        print("seconds:", ", ".join(f"{phase} {taken:.2f}" for phase, taken in heart.durations().items()), flush=True)
        software = Software(
            platform.python_version(),
            run.framework.versions(),
            report.packages(sys.modules),
            run.settings(),
            report.bound(),
        )
        end = RankReport(rank, time.time(), "ok", None, measured, trained, software)
    except BaseException as error:
        end = report.of_error(rank, error, run.framework if run else None)
        if end.status == "failed":
            traceback.print_exc()
    report.write(end, work)
    if end.status == "ok" and run is not None:
        run.close()
    # Skip the interpreter's shutdown, because a rank that stops early must not wait for the other ranks.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if end.status == "failed" else 0)


if __name__ == "__main__":
    sys.exit(main())
