"""The measured loop of a rank, the same for every framework: warm-up, barrier + synchronize + clock, timed steps,
synchronize + clock.

The only clock is the monotonic one. Within the window, there is no print, no reading of a value from the device, no
synchronization and no garbage collection. Standard library, numpy, h5py and the framework only.
"""

import gc
import itertools
import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from throughline.messages import EquivalenceReport, Measured, Memory, Network, StartUp, Window
from throughline.rank import checkpoint_costs, report, rounding
from throughline.rank.run import STAGES, Run
from throughline.spec.job import figures
from throughline.spec.options import MOST_TIMED

MATMUL_S = 1.0
NETWORK_S = 2.0
WARMUP_SHARE = 1 / 3
LEAST_WARMUP, LEAST_TIMED = 2, 3
LOOKS = 3
"""So many steps after the first one may show the speed. The second may compile too, for another shape of a batch."""
COMPILES = 2.0
"""A step that takes so many times the fastest of LOOKS has compiled something, or has waited for something else."""
MARGIN = 0.95
"""The share of a time limit (`max_total_seconds`) that we plan to use, because steps do not all take the same time."""
SPARE = 1.1
"""How many times the shortest window (`min_window_seconds`) we plan for, because steps may get faster."""


@dataclass(frozen=True)
class Looks:
    """The seconds of the warm-up steps after the first, each timed by itself, and what they say about the speed."""

    seconds: tuple[float, ...]

    @property
    def made(self) -> int:
        """How many warm-up steps there are so far, with the first."""
        return 1 + len(self.seconds)

    @property
    def step_s(self) -> float:
        """The seconds of a step: those of the fastest."""
        return max(min(self.seconds), 1e-9)

    @property
    def elapsed_s(self) -> float:
        """The seconds of all these steps. One that compiled counts as the fastest, so that a window is not shorter in a
        library that compiles."""
        return sum(each if each <= COMPILES * self.step_s else self.step_s for each in self.seconds)

    def fit(self, requested: int, timed: int, max_total_seconds: float) -> bool:
        """True if everything that was asked for fits into `max_total_seconds`."""
        return self.elapsed_s + (requested - self.made + timed) * self.step_s <= max_total_seconds * MARGIN

    def are_enough(self, requested: int, timed: int, max_total_seconds: float, surely: bool) -> bool:
        """True if the speed is known well enough. `surely`: we need it even if the steps' seconds exceed their share.

        On a slow CPU, where nothing compiles, another look would only make the run longer.
        """
        all_fit = max_total_seconds < math.inf and self.fit(requested, timed, max_total_seconds)
        if len(self.seconds) == LOOKS or all_fit:
            return True
        room = max_total_seconds * MARGIN * WARMUP_SHARE - self.elapsed_s
        return not surely and room < self.step_s


def warmup_steps(requested: int, timed: int, max_total_seconds: float, looks: Looks) -> int:
    """Return the number of warm-up steps, those of `looks` included: the requested number if all steps fit into
    `max_total_seconds`, otherwise what fits into a third of that time."""
    if looks.fit(requested, timed, max_total_seconds):
        return max(looks.made, requested)
    more = int(max(0.0, max_total_seconds * MARGIN * WARMUP_SHARE - looks.elapsed_s) / looks.step_s)
    return max(looks.made, min(requested, looks.made + more))


def timed_steps(requested: int, max_total_seconds: float, elapsed_s: float, step_s: float) -> int:
    """Return how many timed steps fit into what the warm-up left of `max_total_seconds`: LEAST_TIMED to `requested`."""
    fit = int(max(0.0, max_total_seconds * MARGIN - elapsed_s) / step_s)
    return min(requested, max(LEAST_TIMED, fit))


@dataclass(frozen=True)
class Timed:
    """The raw results of the measured loop.

    losses: of every step, with the warm-up; marks: one at the window's start and one after each timed step;
    cpu_seconds: processor time within the window; skipped, stalled: the skipped steps and the seconds of waiting for
    data before the window; skipped_at: in an equivalence check in fp16, the steps that the loss scaler skipped.
    """

    losses: list[Any]
    warmup: int
    marks: list[Any]
    window: Window
    cpu_seconds: float
    skipped: int
    stalled: float
    skipped_at: list[int]


Loop = Generator[None, Any, Timed]
"""A generator that receives the loss of each step, as the framework's value on the device."""


class Measurement:
    """The measurement of a rank that has been built."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.framework = run.framework
        self.heart = run.heart
        # A job and an equivalence check have steps of their own.
        free = run.trains and not run.job and not run.plan.weights
        self.shortest_s = run.steps.shortest_s(run.plan.kind) if free else 0.0
        self.first_step_s: float | None = None

    def measure(self) -> Measured:
        """Warm up, time the window, and read all results after it."""
        run, framework, loop = self.run, self.framework, self._loop()
        done = framework.drive(loop, run.micro_batches, self.heart) if framework.own_step else self._drive(loop)
        warmup, timed = done.warmup, len(done.marks) - 1
        step_seconds = framework.seconds(done.marks)
        losses = framework.losses(done.losses) if run.trains else None
        start_up = self._start_up(step_seconds)
        memory = Memory(**framework.memory())  # read it now, because the measurements below need memory too
        flops_per_s, reason = self._matmul(done.window.seconds)
        return Measured(
            window=done.window,
            cpu_seconds=done.cpu_seconds,
            loader_stall_s=run.loader.stall_s - done.stalled if run.loader else None,
            facts=run.facts,
            counted=self._counted(warmup, timed),
            figures=[*self._figures(), *self._of_job(done.window, sum(step_seconds))],
            step_seconds=step_seconds,
            loss=losses[warmup:] if losses is not None else None,
            warmup_loss=losses[:warmup] if losses is not None else None,
            warmup_steps=warmup,
            steps_timed=timed,
            scaler_skipped_steps=framework.skipped() - done.skipped if run.trains else 0,
            memory=memory,
            min_window_seconds=self.shortest_s,
            batches_ahead=run.loader.ahead if run.loader else 0,
            network=self._network(),
            rounding=rounding.probe(framework),
            matmul_flops_per_s=flops_per_s,
            work_reasons={"matmul_flops_per_s": reason} if reason else {},
            equivalence=self._equivalence(done.skipped_at),
            start_up=start_up,
            checkpoints=checkpoint_costs.measure(run, done.window.seconds / timed),
        )

    def _equivalence(self, skipped_at: list[int]) -> EquivalenceReport | None:
        """Return what only an equivalence check asks for; None in any other run."""
        if not self.run.plan.weights:
            return None
        expected = self.run.expected
        compared = expected.compared(self.framework) if expected else []
        return EquivalenceReport(skipped_at, compared, expected.reason if expected else "the reference left no updates")

    def _drive(self, loop: Loop) -> Timed:
        """Make each step that the loop asks for, and send its loss to the loop."""
        next(loop)
        while True:
            try:
                loop.send(self.run.step())
            except StopIteration as end:
                timed: Timed = end.value
                return timed

    def _loop(self) -> Loop:
        """The measured loop. It is a generator, because some frameworks make the steps themselves. After each step, the
        loop receives the step's loss."""
        framework, heart = self.framework, self.heart
        losses, warmup, timed = yield from self._warm_up()

        heart.phase("training", timed)
        gc.collect()
        gc.freeze()
        gc.disable()
        skipped = framework.skipped() if self.run.trains else 0
        stalled = self.run.loader.stall_s if self.run.loader else 0.0
        framework.window_opens()
        framework.barrier()
        framework.sync()
        cpu = time.process_time()
        start = time.monotonic()
        marks = [framework.mark()]
        skipped_at: list[int] = []
        # The window of an equivalence check is not timed.
        looks = bool(self.run.plan.weights) and self.run.spec.precision == "fp16"
        for done in range(1, timed + 1):
            losses.append((yield))
            marks.append(framework.mark())
            if looks and framework.skipped() > skipped + len(skipped_at):
                skipped_at.append(done)
            heart.step(done)
        if self.run.job:
            yield  # wait until the job's last evaluation is done
        framework.sync()
        end = time.monotonic()
        cpu = time.process_time() - cpu
        gc.enable()
        heart.phase("end")
        return Timed(losses, warmup, marks, Window(start, end), cpu, skipped, stalled, skipped_at)

    def _start_up(self, step_seconds: list[float]) -> StartUp:
        """Return the seconds until the end of the first step, which is in the window if there is no warm-up."""
        taken = self.heart.durations()
        seconds = {"imports": taken["start"], **{part: taken[part] for part in STAGES if part in taken}}
        seconds["first_step"] = step_seconds[0] if self.first_step_s is None else self.first_step_s
        began = time.time() - (time.monotonic() - self.heart.began)
        return StartUp(began, seconds, self.framework.from_cache())

    def _figures(self) -> list[dict[str, Any]]:
        """Return the figures beside throughput that the implementation measures after the window, if declared."""
        every = self.run.workload.figures
        declared = {figure.name: figure for figure in every if not (figure.of_steps or figure.of_counts)}
        return [
            {"name": name, "unit": declared[name].unit, "better": declared[name].better, "at": at, "value": value}
            for name, at, value in (self.framework.form.figures(self.framework.network) if declared else ())
        ]

    def _network(self) -> Network | None:
        """Measure the exchange of a step's gradients alone. Return None if the run does not ask for it."""
        plan, asked = self.run.plan, self.run.spec.network
        asked = plan.kind == "cuda" if asked is None else asked
        if not (asked and self.framework.exchanges) or plan.weights:
            return None
        try:
            measured = self.framework.exchange_alone(NETWORK_S)
        except Exception as error:  # the run itself has already been measured
            return Network(None, None, None, report.words(error).splitlines()[0])
        if measured is None:
            return Network(None, None, None, "the framework does not measure it here, or there was too little memory")
        message_bytes, seconds = measured
        return Network(len(message_bytes), sum(message_bytes), seconds, None)

    def _of_job(self, window: Window, training_s: float) -> list[dict[str, Any]]:
        """Return the figures of a whole job; none if the run is not a job."""
        if self.run.job is None:
            return []
        ours = {
            "samples_per_second_without_evaluations": self.run.job.trained / training_s,
            "preparation": window.start - self.run.opened,
        }
        return figures({**self.framework.told(), **ours})

    def _matmul(self, window_s: float) -> tuple[float | None, str | None]:
        """Return the FLOP/s of a large matrix product on this device, or the reason why it is unknown.

        The measurement takes as long as the window, but at most MATMUL_S.
        """
        if self.run.plan.weights:
            return None, "not measured where frameworks are compared"
        try:
            rate = self.framework.matmul(min(MATMUL_S, window_s))
        except Exception as error:  # the run itself has already been measured
            return None, report.words(error).splitlines()[0]
        return rate, "this framework does not measure it" if rate is None else None

    def _warm_up(self) -> Generator[None, Any, tuple[list[Any], int, int]]:
        """Make the warm-up. Return its losses, its number of steps, and the number of steps to time."""
        framework, cap = self.framework, self.run.steps.max_total_seconds
        requested, timed = self.run.steps.warmup, self.run.steps.timed
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

        as_asked, began = cap is None and not self.shortest_s, time.monotonic()
        if requested or not as_asked:
            yield from steps(LEAST_WARMUP - 1)
            self.first_step_s = time.monotonic() - began
        if as_asked:
            yield from steps(requested)
            return losses, requested, timed
        # The first step does not count: some libraries compile in it, and their window would be shorter than that of
        # others. The next ones show the speed. Rank 0 decides the numbers of steps for all ranks.
        most = math.inf if cap is None else cap
        surely = self.run.plan.kind != "cpu" or bool(self.run.options.compile)
        looks = Looks(((yield from steps(LEAST_WARMUP)),))
        while framework.broadcast(int(not looks.are_enough(requested, timed, most, surely))):
            looks = Looks((*looks.seconds, (yield from steps(len(losses) + 1))))
        warmup = framework.broadcast(warmup_steps(requested, timed, most, looks))
        rest = yield from steps(warmup)
        elapsed, left = looks.elapsed_s + rest, warmup - looks.made
        step_s = rest / left if left else looks.step_s
        wanted = max(timed, min(MOST_TIMED, math.ceil(self.shortest_s * SPARE / step_s)))
        if cap is not None:
            wanted = timed_steps(wanted, cap, elapsed, elapsed / (warmup - 1))
        return losses, warmup, framework.broadcast(wanted)

    def _counted(self, warmup: int, timed: int) -> dict[str, float]:
        """Return the workload's figures from the counts of the window's rows."""
        run = self.run
        if not run.counts:
            return {}
        each = run.options.gradient_accumulation
        window = run.counts
        if not run.job:  # synthetic batches repeat
            window = [*itertools.islice(itertools.cycle(window), warmup * each, (warmup + timed) * each)]
        sums = tuple(sum(counts) for counts in zip(*window, strict=True))
        samples = run.job.samples if run.job else len(window) * run.size.batch_per_replica
        return run.workload.counted(sums, samples, run.spec)
