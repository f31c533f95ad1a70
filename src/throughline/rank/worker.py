"""The program of one rank. It runs in the framework's own environment.

    python -m throughline.rank.worker WORK/launch_plan.json     (variables of the environment give the rank: ranks.py)

It builds its part of the run (run.py), measures it (measurement.py) or makes a convergence check (convergence.py), and
writes its report. Standard library, numpy, h5py and the framework only.
"""

import faulthandler
import gc
import os
import platform
import signal
import sys
import time
import traceback
from pathlib import Path

from throughline import messages
from throughline.messages import LaunchPlan, RankReport, Software
from throughline.processes import die_with_parent, wait_until
from throughline.rank import checkpoint_costs, convergence, ranks, reading, report
from throughline.rank.heartbeat import Heart
from throughline.rank.measurement import Measurement
from throughline.rank.run import Run

REPORTS_S = 60.0
"""How long a shared file system may take to show the reports of all ranks."""


def main() -> int:
    die_with_parent(os.getppid(), signal.SIGKILL)
    path = Path(sys.argv[1])
    plan, work = messages.read(LaunchPlan, path), path.parent
    rank, _, world = ranks.read_place(os.environ)
    here = ranks.folder(work, plan.agent_of(rank))
    ranks.redirect_output(here / f"rank_{rank}.out")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    heart = Heart(here / f"rank_{rank}.beat")
    run: Run | None = None
    try:
        if world != plan.world:
            raise RuntimeError(f"{world} ranks were started, and {plan.world} belong to this run")
        gc.disable()  # imports and the model stay in memory; looking for garbage takes a sixth of a rank's start-up
        run = Run(plan, rank, heart)
        run.build()
        gc.freeze()
        gc.enable()
        trained = convergence.train(run, plan.convergence) if plan.convergence else None
        restarted = checkpoint_costs.restart(run) if plan.restart else None
        measure = reading.measure if run.reads_alone else lambda built: Measurement(built).measure()
        measured = None if plan.convergence or plan.restart else measure(run)
        print("seconds:", ", ".join(f"{phase} {taken:.2f}" for phase, taken in heart.durations().items()), flush=True)
        software = Software(
            platform.python_version(),
            run.framework.versions(),
            report.packages(sys.modules),
            run.settings(),
            report.bound(),
        )
        end = RankReport(rank, time.time(), "ok", None, measured, trained, software, restarted=restarted)
    except BaseException as error:
        end = report.of_error(rank, error, run.framework if run else None)
        if end.status == "failed":
            traceback.print_exc()
    report.write(end, work)
    if end.status == "ok" and run is not None:
        if end.is_killed:
            run.framework.barrier()
            # The agent ends a node's ranks with the first that dies. So all reports have to be there, and be seen.
            wait_until(lambda: all((work / f"rank_{other}.json").is_file() for other in range(world)), REPORTS_S)
            os.kill(os.getpid(), signal.SIGKILL)
        run.close()
    # Skip the interpreter's shutdown, because a rank that stops early must not wait for the other ranks.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if end.status == "failed" else 0)


if __name__ == "__main__":
    sys.exit(main())
