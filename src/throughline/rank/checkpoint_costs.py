"""What checkpoints cost a rank: saving, saving in the background beside the steps, and loading; and a restart from one.

It follows the timed window, and every rank calls it at the same time. A save lasts until the files of all ranks are on
the disk. A load is cold if the files were dropped from the page cache before it; where that does not work, all loads
count as warm. Standard library only.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from throughline import disk
from throughline.messages import Checkpointed, Restarted
from throughline.rank import report
from throughline.rank.run import Run

TIMES = 3
"""So many checkpoints are saved each way."""
LONG_S = 20.0
"""A save that takes longer is measured once."""
LOOK_S = 0.25
"""Steps beside a save go on for so long before the ranks ask whether it is done, so that asking costs little."""
BEAT_S = 5.0
ASIDE, LAST = "aside", "last"
"""The folders of the last checkpoint that was saved in the background, and of the one that a restart begins from."""


def measure(run: Run, step_s: float) -> Checkpointed | None:
    """Return what checkpoints cost; None if the run does not ask for it. step_s: seconds of a step in the window."""
    if run.plan.checkpoints is None:
        return None
    with _alive(run):
        try:
            return Costs(run, Path(run.plan.checkpoints), step_s).measured()
        except Exception as error:  # the run itself has already been measured
            return Checkpointed(reason=report.words(error).splitlines()[0])


def restart(run: Run) -> Restarted:
    """Begin again from the last checkpoint that `measure` left, and make the first step from there."""
    folder = Path(str(run.plan.checkpoints)) / LAST
    run.step()  # it makes the optimizer's states, which the load then sets
    with _alive(run):
        costs = Costs(run, folder.parent, 0.0)
        costs.drop(folder)
        costs.checkpoints.load(folder)
        start = time.monotonic()
        digest = costs.checkpoints.digest()
        checking = time.monotonic() - start
    run.step()
    run.framework.sync()
    return Restarted(time.time() - checking, digest)


class Costs:
    """The measurement of one rank. `folder` holds all checkpoints, and all ranks see it."""

    def __init__(self, run: Run, folder: Path, step_s: float) -> None:
        self.run, self.folder, self.framework = run, folder, run.framework
        self.checkpoints = run.framework.checkpoints()
        self.together = max(1, round(LOOK_S / max(step_s, 1e-6)))
        """Steps that are made before the ranks ask whether a save is done."""
        self.cold, self.warm = list[float](), list[float]()

    def measured(self) -> Checkpointed:
        """Save in the background and then without steps, load both checkpoints, and compare what was loaded."""
        blocked, written, lost, saves = list[float](), list[float](), list[float](), list[float]()
        aside, last = self.folder / ASIDE, self.folder / LAST
        before = ""
        while self._another(written):
            before = self.checkpoints.digest()
            for seconds, kept in zip(self._beside_steps(aside), (blocked, written, lost), strict=True):
                kept.append(seconds)
        after = self.checkpoints.digest()
        while self._another(saves):
            self._empty(last)
            saves.append(self._timed(lambda: self.checkpoints.save(last)))
        equal = [self._load(aside, before), self._load(last, after)]
        return Checkpointed(
            bytes=sum(path.stat().st_size for path in _files(last)),
            file_system=disk.file_system(self.folder),
            equal=all(equal),
            save_s=saves,
            async_blocked_s=blocked,
            async_written_s=written,
            async_lost_s=lost,
            load_cold_s=self.cold,
            load_warm_s=self.warm,
            digest=after,
        )

    def _another(self, taken: list[float]) -> bool:
        """True if one more save is measured. Rank 0 decides it for all ranks."""
        wanted = not taken or (len(taken) < TIMES and taken[0] <= LONG_S)
        return bool(self.framework.broadcast(int(wanted)))

    def _timed(self, call: Callable[[], None]) -> float:
        """Return the seconds of a call, until all ranks have made it."""
        self._meet()
        start = time.monotonic()
        call()
        self._meet()
        return time.monotonic() - start

    def _meet(self) -> None:
        self.framework.sync()
        self.framework.barrier()

    def _empty(self, folder: Path) -> None:
        """Remove a folder, so that no save overwrites files."""
        self.framework.barrier()
        if self.run.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        self.framework.barrier()

    def _beside_steps(self, folder: Path) -> tuple[float, float, float]:
        """Save in the background of steps. Return for how long it held them up, when it was on the disk, and what it
        cost them: how much longer they took than as many steps without it."""
        self._empty(folder)
        self._meet()
        start = time.monotonic()
        save = self.checkpoints.save_async(folder)
        blocked = time.monotonic() - start
        done_after: list[float] = []
        save.add_done_callback(lambda _: done_after.append(time.monotonic() - start))
        rounds, done = 0, False
        while not done:
            self._steps(1)
            rounds, done = rounds + 1, bool(self.framework.broadcast(int(save.done())))
        save.result()  # the other ranks are done at almost the same time
        self._meet()
        beside = time.monotonic() - start
        alone = self._timed(lambda: self._steps(rounds, True))
        return blocked, min([*done_after, beside]), beside - alone

    def _steps(self, rounds: int, asks: bool = False) -> None:
        for _ in range(rounds):
            for _ in range(self.together):
                self.run.step()
            if asks:
                self.framework.broadcast(0)

    def _load(self, folder: Path, digest: str) -> bool:
        """Load a checkpoint twice, and note the seconds. Return whether all is as it was saved."""
        equal = True
        for kept in (self.cold if self.drop(folder) else self.warm, self.warm):
            self.checkpoints.spoil()
            kept.append(self._timed(lambda: self.checkpoints.load(folder)))
            equal = equal and self.checkpoints.digest() == digest
        return equal

    def drop(self, folder: Path) -> bool:
        """Drop a checkpoint from the page cache of every node. Return whether that worked on rank 0's."""
        self.framework.barrier()
        dropped = disk.drop(_files(folder))
        return bool(self.framework.broadcast(int(dropped)))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _alive(run: Run) -> Iterator[None]:
    """Report bytes that this process reads and writes as progress, so that a slow disk does not look like a hang."""
    run.heart.phase("checkpoint")
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            counts = Path("/proc/self/io").read_text().split()
            run.heart.step(int(counts[1]) + int(counts[3]))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        run.heart.phase("end")
