"""Reading alone: what the loader of a rank gives without training (`data: reading`), from cold and from warm files.

Passes with 1, 2, 4, ... workers, last with those of the run. Before each pair of passes, the shards are dropped from
the node's page cache. The first pass reads them from the disk, the second one reads the same batches from memory. All
ranks read at the same time, as in training. Standard library only.
"""

import itertools
import os
import time

from throughline import disk
from throughline.messages import Measured, Memory, ReadPass, Window
from throughline.rank.data import Decoder
from throughline.rank.run import Run

PASS_S = 5.0
"""A pass lasts about so many seconds. A cold one ends after an epoch, which is warm when it is read again."""
LEAST_COLD, MOST_WARM = 4, 10_000
"""The fewest batches of a cold pass, and the most of a warm one, because a record has every batch."""


def measure(run: Run) -> Measured:
    """Make all passes. The window is the last one: warm, with the workers of the run."""
    reading = _Reading(run)
    for workers in reading.workers():
        run.manifest = run.open_manifest()  # mapped files of the passes before are closed, and can be dropped
        state = reading.dropped()
        reading.make(workers, state, reading.most)
        batches = run.framework.broadcast(reading.batches_warm())
        cpu = time.process_time()
        reading.make(workers, "warm", batches, limit_s=float("inf"))
        cpu = time.process_time() - cpu
    run.heart.phase("end")
    marks = reading.marks
    return Measured(
        window=Window(marks[0], marks[-1]),
        step_seconds=[end - start for start, end in itertools.pairwise(marks)],
        warmup_steps=0,
        steps_timed=len(marks) - 1,
        cpu_seconds=cpu,
        memory=Memory(**run.framework.memory()),
        work_reasons={"matmul_flops_per_s": "this run only reads"},
        facts=run.facts,
        min_window_seconds=PASS_S,
        reading=reading.passes,
    )


class _Reading:
    """The passes of a rank. `marks`: when the batches of the last pass came; the first mark is its start.

    ready: how many batches a reader that decodes may have decoded while its rank waits for the others.
    """

    def __init__(self, run: Run) -> None:
        assert run.manifest
        self.run, self.passes, self.marks = run, list[ReadPass](), list[float]()
        reader = run.manifest.reader
        self.ready = 2 + reader.slots if isinstance(reader, Decoder) else 0
        epochs = run.manifest.order(run.spec.seed, run.replica, run.size.replicas)
        rows = sum(count for _, _, count in itertools.takewhile(lambda part: part[0] == 0, epochs))
        self.most = max(1, rows // run.size.batch_per_replica - self.ready - 1)

    def workers(self) -> list[int]:
        """Return the numbers of workers: powers of two up to a rank's share of the cores, and last those of the run."""
        if not self.ready:
            return [1]
        most, ours = len(os.sched_getaffinity(0)) // self.run.plan.devices, self.run.spec.decoders
        return [*(1 << power for power in range(most.bit_length()) if 1 << power != ours), ours]

    def dropped(self) -> str:
        """Drop the shards from the page cache, once on each node. Return whether a pass over them is then cold."""
        manifest = self.run.manifest
        if self.most < LEAST_COLD:
            return "not cold"
        if self.run.framework.local_rank or not manifest:
            return "cold"
        entries = (entry for shard in manifest.shards for entry in (shard, shard.get("index")) if entry)
        return "cold" if disk.drop(map(manifest.file, entries)) else "not cold"

    def batches_warm(self) -> int:
        """Return how many batches a warm pass takes: those of the last pass, or of PASS_S if it read a whole epoch."""
        done, seconds = len(self.marks) - 1, self.marks[-1] - self.marks[0]
        if done < self.most:
            return done
        return max(1, min(MOST_WARM, int(done / seconds * PASS_S)))

    def make(self, workers: int, state: str, most: int, limit_s: float = PASS_S) -> None:
        """Take batches for `limit_s`, but at most so many.

        Where processes decode, it begins when those of all ranks have started, after what they have decoded till then.
        """
        self.run.heart.phase("reading", most)
        self.run.framework.barrier()
        start, loader = time.monotonic(), self.run.new_loader(workers, ahead=1)
        if self.ready:
            loader.next()
            self.run.framework.barrier()
            for _ in range(self.ready):
                loader.next()
            start = time.monotonic()
        self.marks = [start]
        while len(self.marks) <= most and self.marks[-1] - start < limit_s:
            loader.next()
            self.marks.append(time.monotonic())
            self.run.heart.step(len(self.marks) - 1)
        loader.close()
        samples = (len(self.marks) - 1) * self.run.size.batch_per_replica
        self.passes.append(ReadPass(workers, state, samples, self.marks[-1] - start))  # type: ignore[arg-type]
