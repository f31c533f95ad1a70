"""The measured loop: one rank, any framework. Run by the launcher, in the framework's own environment.

    python -m throughline.rank.worker WORK/job.json     (its rank stands in the environment: ranks.py)

Order, in every framework: join, device, model, data, optimizer, warm-up, barrier + synchronize + clock, timed steps,
synchronize + clock. One clock, the monotonic one. Within the window: no print, no reading of a device's value, no
synchronization, no garbage collection. Imports the standard library, numpy, h5py and the framework only.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import json
import os
import platform
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from throughline import frameworks, size, workloads
from throughline.observe import environment
from throughline.processes import die_with_parent
from throughline.rank import convergence, ranks, schedule
from throughline.rank.data import AHEAD, Loader, Manifest, batches, synthetic_seeds
from throughline.rank.heartbeat import Heart

MATMUL_S = 1.0


class Run:
    """One rank of one run, after its framework is joined and built."""

    def __init__(self, job: dict[str, Any], rank: int, heart: Heart) -> None:
        self.spec, self.rank, self.world, self.heart = job["spec"], rank, job["world"], heart
        self.steps, self.options = self.spec["steps"], self.spec["options"]
        self.size = size.of_spec(self.spec)
        self.replica = rank // (self.world // self.size.replicas)
        self.workload = workloads.of(self.spec["model"])
        self.manifest = Manifest(Path(job["manifest"]), str(self.workload.DATA)) if job["manifest"] else None
        self.facts = self.workload.facts(self.manifest.content if self.manifest else None)
        self.weights: str | None = job.get("weights")
        self.convergence: dict[str, Any] | None = job.get("convergence")
        self.loader: Loader | None = None
        self.counts: list[tuple[int, ...]] = []
        framework = frameworks.load(self.spec["framework"])
        self.framework = framework(self.spec, rank, rank % job["per_node"], self.world, job["kind"])

    def build(self) -> None:
        """Everything before the first step."""
        frameworks.refuse(self.spec)
        stages: list[tuple[str, Callable[[], Any]]] = [
            ("join", self.framework.join),
            ("device", self.framework.device),
            ("model", lambda: self.framework.model(self.facts)),
            ("data", self._open),
            ("optimizer", self.framework.optimizer),
        ]
        for name, stage in stages:
            self.heart.phase(name)
            if name == "model":
                _limit_memory(self.options["memory_limit_mb"])
            stage()
            if name == "model" and self.weights:
                self.framework.load(_arrays(self.weights))

    def _open(self) -> None:
        count, seed = self.size.batch_per_replica, self.spec["seed"]
        if self.manifest:
            done = ((self.convergence or {}).get("resume") or {"step": 0})["step"]
            source = batches(self.manifest, seed, self.replica, self.size.replicas, count)
            source = itertools.islice(source, done * self.options["accumulate"], None)
            self.loader = Loader(source, self._prepared)
        else:
            made = (self.workload.synthetic(count, self.spec, one) for one in synthetic_seeds(seed, self.replica))
            kept = [self.framework.deliver(self.framework.data(arrays)) for arrays in made]
            self.resident: Iterator[Any] = itertools.cycle(kept)

    def _prepared(self, rows: Any) -> Any:
        self.counts.append(self.workload.counts(rows))
        return self.framework.data(self.workload.batch(rows, self.options))

    def _counted(self, warmup: int, timed: int) -> dict[str, float]:
        """What the workload says of the window's rows, which the thread that prepares batches has counted."""
        if self.loader is None:
            return {}
        each = self.options["accumulate"]
        window = self.counts[warmup * each : (warmup + timed) * each]
        sums = tuple(sum(counts) for counts in zip(*window, strict=True))
        return self.workload.counted(sums, len(window) * self.size.batch_per_replica, self.spec)

    def micro_batches(self) -> list[Any]:
        """What one optimizer step takes, on its way to the device."""
        count = self.options["accumulate"]
        if self.loader is None:
            return [next(self.resident) for _ in range(count)]
        return [self.framework.deliver(self.loader.next()) for _ in range(count)]

    def measure(self) -> dict[str, Any]:
        """Warm up, time the window, and read everything afterwards."""
        framework, heart = self.framework, self.heart
        losses, warmup, timed = self._warm_up()

        heart.phase("training", timed)
        gc.collect()
        gc.freeze()
        gc.disable()
        skipped = framework.skipped()
        stalled = self.loader.stall_s if self.loader else None
        framework.barrier()
        framework.sync()
        cpu = time.process_time()
        start = time.monotonic()
        marks = [framework.mark()]
        for done in range(1, timed + 1):
            losses.append(framework.step(self.micro_batches()))
            marks.append(framework.mark())
            heart.step(done)
        framework.sync()
        end = time.monotonic()
        cpu = time.process_time() - cpu
        gc.enable()

        heart.phase("end")
        every = framework.losses(losses)
        return {
            "window": [start, end],
            "cpu_seconds": cpu,
            "loader_stall_s": self.loader.stall_s - stalled if self.loader and stalled is not None else None,
            "facts": self.facts,
            "counted": self._counted(warmup, timed),
            "step_seconds": framework.seconds(marks),
            "loss": every[warmup:],
            "warmup_loss": every[:warmup],
            "warmup_steps": warmup,
            "steps_timed": timed,
            "scaler_skipped_steps": framework.skipped() - skipped,
            "memory": framework.memory(),
            "figures": self._figures(),
            **self._matmul(end - start),
        }

    def _figures(self) -> list[dict[str, Any]]:
        """What the workload declares beside throughput, as its form measures it after the window."""
        declared = {one.name: one for one in self.workload.FIGURES}
        return [
            {"name": name, "unit": declared[name].unit, "better": declared[name].better, "at": at, "value": value}
            for name, at, value in (self.framework.figures() if declared else ())
        ]

    def _matmul(self, window_s: float) -> dict[str, Any]:
        """What this device can do at most: FLOP/s of a large matrix product, over as long as the window or a second."""
        why = "not measured where frameworks are compared" if self.weights else "this framework does not measure it"
        measure = None if self.weights else getattr(self.framework, "matmul", None)
        if measure is not None:
            try:
                return {"matmul_flops_per_s": measure(min(MATMUL_S, window_s))}
            except Exception as error:  # the run itself is measured by now
                why = f"{type(error).__name__}: {_said(error)}".splitlines()[0]
        return {"matmul_flops_per_s": None, "work_reasons": {"matmul_flops_per_s": why}}

    def _warm_up(self) -> tuple[list[Any], int, int]:
        """Losses of the warm-up, its number of steps, and the number of steps to time."""
        framework, cap = self.framework, self.steps["at_most_s"]
        asked, timed = self.steps["warmup"], self.steps["timed"]
        losses: list[Any] = []
        self.heart.phase("warm-up", asked)

        def steps(until: int) -> float:
            """Warm up to step `until`; seconds that it took."""
            framework.sync()
            start = time.monotonic()
            while len(losses) < until:
                losses.append(framework.step(self.micro_batches()))
                self.heart.step(len(losses))
            framework.sync()
            return time.monotonic() - start

        if cap is None:
            steps(asked)
            return losses, asked, timed
        # Two steps tell the speed; rank 0 decides for all.
        first, second = steps(schedule.LEAST_WARMUP - 1), steps(schedule.LEAST_WARMUP)
        elapsed = first + second
        warmup = framework.broadcast(schedule.warmup_steps(asked, timed, cap, elapsed, second))
        more = steps(warmup)
        speed = (second + more) / (warmup - 1)
        return losses, warmup, framework.broadcast(schedule.timed_steps(timed, cap, elapsed + more, speed))

    def settings(self) -> dict[str, Any]:
        """What the framework states of itself, and what this loop does the same for all."""
        how = self.manifest.reader.how if self.manifest else None
        read = f", {f'{how}, ' if how else ''}prepared {AHEAD} batches ahead" if self.loader else ""
        return {
            **self.framework.settings(),
            "bucket_mb": self.options["bucket_mb"],
            "data": self.options["data"] + read,
            "timed_step": f"deliver, forward, backward, {'exchange, ' if self.options['exchange'] else ''}clip, update",
        }

    def close(self) -> None:
        if self.loader:
            self.loader.close()
        self.framework.close()


def _arrays(path: str) -> dict[str, Any]:
    import numpy as np

    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def _limit_memory(megabytes: int | None) -> None:
    """Cap this process's data segment, so that too much is the allocator's error; the libraries are loaded by now."""
    if megabytes is not None:  # the soft limit alone: the report is written without it
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def main() -> int:
    die_with_parent(os.getppid(), signal.SIGKILL)
    job, work = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[1]).parent
    rank, _, world = ranks.of(os.environ)
    here = ranks.folder(work)
    ranks.speak_through(here / f"rank_{rank}.out")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    heart = Heart(here / f"rank_{rank}.beat")
    run: Run | None = None
    try:
        if world != job["world"]:
            raise RuntimeError(f"{world} ranks were started, and {job['world']} belong to this run")
        run = Run(job, rank, heart)
        run.build()
        done = convergence.train(run, run.convergence) if run.convergence else run.measure()
        result = {"status": "ok", **done}
        print("seconds:", ", ".join(f"{phase} {taken:.2f}" for phase, taken in heart.durations().items()), flush=True)
        result["python"] = platform.python_version()
        result["versions"] = run.framework.versions()
        result["packages"] = environment.packages(sys.modules)
        result["settings"] = run.settings()
    except frameworks.Unsupported as reason:
        result = {"status": "unsupported", "reason": str(reason)}
    except BaseException as error:
        memory = isinstance(error, MemoryError) or (run is not None and run.framework.is_out_of_memory(error))
        if not memory:
            traceback.print_exc()
        result = {"status": "oom" if memory else "failed", "reason": f"{type(error).__name__}: {_said(error)}"}
    _report(work / f"rank_{rank}.json", {"rank": rank, "at": time.time(), **result})
    if result["status"] == "ok" and run is not None:
        run.close()
    # Without the interpreter's tear-down: a rank that stops early must not wait for the others.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if result["status"] == "failed" else 0)


def _said(error: BaseException) -> str:
    """An error's message; of one that begins with a traceback of its own (MXNet's), the last line."""
    text = str(error)
    return text.splitlines()[-1].partition(": ")[2] if text.startswith("Traceback") else text


def _report(path: Path, result: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
