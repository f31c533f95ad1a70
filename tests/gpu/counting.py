"""Count what a step launches: `python counting.py RESULTS < CASES`, on the fake CUDA driver.

Each line of CASES is a case (cases.py). PyTorch is imported once; each case has a process of its own, which is a copy
of this one. So a case that ends in a crash is the failure of this case alone, and no case sees the compiled graphs or
the memory of another. RESULTS gets a line of JSON for each case, as soon as it has ended.

A rank is built and makes its steps as in a run (throughline/rank/run.py). Of several ranks only one exists: the fake
driver exchanges nothing, so no rank waits for the others.
"""

import collections
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import re
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.optim
from torch._dynamo.utils import counters

from throughline import workloads
from throughline.frameworks.torch import ddp  # noqa: F401  (every case copies what is imported here)
from throughline.messages import LaunchPlan
from throughline.rank.heartbeat import Heart
from throughline.rank.run import Run
from throughline.workloads import Unsupported

WARMUP = 12
"""Steps before those that are counted. Synthetic batches repeat after four, and DistributedDataParallel reads its own
timers, for which it waits, in the first ten."""
STEPS = 2
"""Steps that are counted."""
AT_ONCE = int(os.environ.get("GPU_DRY_PROCESSES", "2"))
BYTES = re.compile(r"^(\d+)( bytes|$)")


def main() -> None:
    results = Path(sys.argv[1])
    running: dict[int, tuple[dict[str, Any], float, Path]] = {}
    waiting = collections.deque(json.loads(line) for line in sys.stdin)
    folder = Path(tempfile.mkdtemp(prefix="throughline-lane-"))
    forms = [f"throughline.workloads.{folder}.in_torch" for folder in workloads.FOLDERS]
    layers = [f"transformers.models.{model}.modeling_{model}" for model in ("bert", "gpt2", "t5")]
    for module in (*forms, *layers):
        with contextlib.suppress(ModuleNotFoundError):  # a workload without a form in PyTorch
            importlib.import_module(module)
    gc.freeze()
    with results.open("a") as stream:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                case = waiting.popleft()
                answer = folder / f"{len(waiting)}.json"
                if (child := os.fork()) == 0:
                    alone(case, answer)
                running[child] = case, time.monotonic(), answer
            ended, status = os.wait()
            case, began, answer = running.pop(ended)
            told = json.loads(answer.read_text()) if answer.exists() else {"error": f"the process ended with {status}"}
            told |= {"name": case["name"], "seconds": round(time.monotonic() - began, 2)}
            stream.write(json.dumps(told) + "\n")
            stream.flush()


def check_recordings() -> None:
    """Let a replay of a CUDA graph be an error if a tensor that its recording used has been freed since.

    PyTorch then looks at every operation of the recording, and compiles none.
    """
    torch.cuda.graph.__init__ = functools.partialmethod(torch.cuda.graph.__init__, check_input_liveness=True)


def alone(case: dict[str, Any], answer: Path) -> None:
    """Count a case in this process, write its results, and end the process."""
    os.environ.update(case["variables"])
    if case.get("checked"):
        check_recordings()
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            told = count(case, answer.with_suffix(""))
    except Unsupported as refused:
        told = {"unsupported": str(refused)}
    except BaseException as error:
        told = {"error": f"{type(error).__name__}: {error}".strip(), "trace": traceback.format_exc()}
    answer.with_suffix(".partial").write_text(json.dumps(told))
    answer.with_suffix(".partial").rename(answer)
    os._exit(0)


def plan(case: dict[str, Any]) -> LaunchPlan:
    """Return the plan of a run with the case's specification."""
    return LaunchPlan(
        spec=case["spec"], python=sys.executable, nodes=1, per_node=case["world"], agents=1, cores=0, kind="cuda",
        manifest=case.get("manifest"), variables={}, reach="here", hosts=[], weights=None,
        workflow=sys.executable, telemetry=False, earlier_gpus=[], strict=False, convergence=None,
    )  # fmt: skip


def count(case: dict[str, Any], work: Path) -> dict[str, Any]:
    """Build a rank, make its first steps, and count what the next ones call."""
    work.mkdir()
    run = Run(plan(case), 0, Heart(work / "beat"))
    if case["world"] > 1:
        meet_nobody()
    run.build()
    for _ in range(case.get("warmup", WARMUP)):
        run.step()
    run.framework.sync()
    compiled, stable = compilations(), torch.cuda.memory_allocated()
    run.framework.window_opens()
    run.framework.mark()
    steps = [read_step(run, work / f"step{number}") for number in range(STEPS)]
    memory = run.framework.memory()
    return {
        "steps": steps,
        "compiled": compilations() - compiled,
        "peak_bytes": memory["window_needed_bytes"],
        "peak_with_warmup_bytes": memory["needed_bytes"],
        "reserved_bytes": memory["reserved_bytes"],
        "between_steps_bytes": stable,
        "settings": {name: str(value) for name, value in run.settings().items()},
    }


def meet_nobody() -> None:
    """Let this rank join groups in which it is alone: with a store of its own instead of rank 0's port.

    The groups are not bound to a device. Otherwise PyTorch would split them off the first one, and a communicator that
    is split off does not say how many ranks it has.
    """
    join = dist.init_process_group

    def alone(*words: Any, device_id: Any = None, **given: Any) -> None:
        join(*words, store=dist.HashStore(), **given)

    dist.init_process_group = alone


def compilations() -> int:
    """Return how many graphs PyTorch has compiled so far."""
    return int(counters["stats"]["unique_graphs"])


def read_step(run: Run, trace: Path) -> list[tuple[str, str, int, int]]:
    """Make a step and return what it called."""
    double = ctypes.CDLL(None)
    double.null_cuda_trace(str(trace).encode())
    run.step()
    run.framework.mark()
    double.null_cuda_trace(None)
    return read(trace)


def read(trace: Path) -> list[tuple[str, str, int, int]]:
    """Return what a step called, from the trace of the fake driver: kind, name, number of calls, bytes (if it names
    any)."""
    calls: dict[tuple[str, str], list[int]] = {}
    for line in trace.read_text().splitlines():
        kind, name, *more = line.split("\t")
        found = BYTES.match(more[0]) if more else None
        calls.setdefault((kind, name), []).append(int(found[1]) if found else 0)
    return [(kind, name, len(each), sum(each)) for (kind, name), each in sorted(calls.items())]


if __name__ == "__main__":
    main()
