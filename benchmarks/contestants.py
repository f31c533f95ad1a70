"""What training_steps.py and tests/gpu/first_card.py compare: steps of one model on the same batches, in turn.

`ours` is the framework `torch`. Others are `hf-trainer`, which is Hugging Face's Trainer, `hf-loop`, a plain loop
around transformers' model, and a loop around PyTorch's own modules (loops/torch_modules.py). Each contestant is a
separate process. It is built and warmed up once, and then makes some steps whenever it is its turn. While one computes,
the others wait on their standard input.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness

if TYPE_CHECKING:
    from throughline.spec import RunSpec

BATCHES = 4


class Failed(Exception):
    """A contestant could not be built or did not answer. The message says why, `label` says which one."""

    def __init__(self, reason: str, label: str) -> None:
        super().__init__(reason)
        self.label = label


class Contestant:
    """One contestant's process. `ready` waits until it is built and warmed up; `steps` makes it do some steps."""

    def __init__(
        self,
        label: str,
        spec: RunSpec,
        turn: Path,
        *,
        modules: bool = False,
        clock: str = "seconds",
        program: Path = Path(__file__),
        end: float = float("inf"),
    ) -> None:
        """Start the process, which trains as `spec` says.

        modules: the model is made of PyTorch's own modules. turn: a file; of the contestants that share it, only one at
        a time uses the device until it is warmed up. We wait for no answer beyond `end`
        (time.monotonic). `clock` counts the seconds of its steps. `program`: this file, here or in another clone.
        """
        self.label, self.clock, self.end = label, clock, end
        self.peak_memory_bytes: int | None = None
        order = {"spec": spec.values(), "modules": modules}
        variables = {"OMP_NUM_THREADS": str(spec.threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        # The Trainer would use every GPU that it sees.
        variables["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in `close`)
        self.process = subprocess.Popen(
            [sys.executable, str(program), json.dumps(order), str(turn)],
            env=os.environ | variables,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1,
        )  # fmt: skip

    def ready(self, limit_s: float = 300) -> float | None:
        """Wait until the contestant is warmed up. Return the loss of the first synthetic batch, without dropout."""
        loss: float | None = self._answer(limit_s)["loss"]
        return loss

    def steps(self, count: int) -> float:
        """Return the seconds that `count` steps take, by `clock`. The device is idle before and after."""
        answer = self._ask(f"steps {count}", 300)
        self.peak_memory_bytes = answer["peak_memory_bytes"]
        return float(answer[self.clock])

    def profile(self, count: int = 3) -> dict[str, float]:
        """Return the seconds of a step on a GPU by kind of kernel, and in total (`wall`)."""
        kernels: dict[str, float] = self._ask(f"profile {count}", 60)["kernels"]
        return kernels

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.errors.close()

    def _ask(self, question: str, limit_s: float) -> dict[str, Any]:
        assert self.process.stdin
        try:
            self.process.stdin.write(question + "\n")
        except BrokenPipeError:
            raise Failed(self._last_words(), self.label) from None
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        assert self.process.stdout
        limit_s = max(0.0, min(limit_s, self.end - time.monotonic()))
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                self.process.kill()
                raise Failed(f"no answer within {limit_s:.0f} s", self.label)
        text = self.process.stdout.readline()
        if not text:
            self.process.wait(30)
            raise Failed(self._last_words(), self.label)
        answer: dict[str, Any] = json.loads(text)
        if "failed" in answer:
            raise Failed(answer["failed"], self.label)
        return answer

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = [line for line in self.errors.read().splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"ended with {self.process.poll()}"


def take_turns(
    contestants: list[Contestant], rounds: int, seconds: float, until: float = float("inf")
) -> list[dict[str, float]]:
    """Return one dict per round: label -> seconds per step. Each turn lasts about `seconds`; the order rotates.

    It stops after the first round that ends later than `until` (time.monotonic), but makes at least two rounds.
    """
    counts = {each.label: max(1, round(seconds / max(each.steps(2) / 2, 1e-4))) for each in contestants}
    made: list[dict[str, float]] = []
    for number in range(rounds):
        order = harness.rotated(contestants, number)
        try:
            made.append({each.label: each.steps(counts[each.label]) / counts[each.label] for each in order})
        except Failed:
            if time.monotonic() < until or not made:
                raise
            break  # the time is over; the earlier rounds count
        if time.monotonic() > until and len(made) > 1:
            break
    return made


Asked = dict[str, tuple["RunSpec", dict[str, Any]]]
"""Label -> the specification of a contestant, and more arguments of its `Contestant`."""


@dataclass
class Contest:
    """What a row gave. `refused`: contestant -> why it has no figures. The first losses are without dropout."""

    losses: dict[str, float | None]
    refused: dict[str, str]
    rounds: list[dict[str, float]]
    peak_memory_bytes: dict[str, int | None]
    kernels: dict[str, float] | None = None


def contest(
    asked: Asked,
    tolerance: float,
    rounds: int,
    seconds: float,
    end: float = float("inf"),
    profile: bool = False,
    together: bool = False,
) -> Contest:
    """Measure all contestants of a row that get ready and compute the loss of `ours`, until `end` (time.monotonic).

    together: they compile and warm up at the same time, which needs the memory of all. A contestant that fails is
    refused, and the others go on. If `ours` is refused, nothing is measured.
    """
    found = Contest({}, {}, [], {})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        every = []
        for label, (spec, data) in asked.items():
            every.append(Contestant(label, spec, Path(folder, label if together else "turn"), end=end, **data))
            stack.callback(every[-1].close)
        for each in every:
            try:
                found.losses[each.label] = each.ready(max(1.0, min(300.0, end - 10 - time.monotonic())))
            except Failed as error:
                found.refused[each.label] = str(error)
        ours = found.losses.get("ours")
        for label, loss in found.losses.items():
            if ours and loss and abs(loss / ours - 1) > tolerance:
                found.refused[label] = f"computes another loss: {loss:.4f} instead of {ours:.4f}"
        while not found.rounds and "ours" not in found.refused:
            there = [each for each in every if each.label not in found.refused]
            try:
                found.rounds = take_turns(there, rounds, seconds, end - 5)
            except Failed as error:
                found.refused[error.label] = str(error)
                continue
            found.peak_memory_bytes = {each.label: each.peak_memory_bytes for each in there}
            if profile:
                try:
                    found.kernels = there[0].profile()
                except Failed as error:  # the row is measured by now
                    found.refused["profile"] = str(error)
    return found


def specification(model: str, batch: int, **given: Any) -> RunSpec:
    """Return a contestant's specification. ResNet is trained with SGD, as usual."""
    sgd = {"optimizer": {"name": "sgd", "learning_rate": 0.01}} if model.startswith("resnet") else {}
    return harness.specification(model, batch, **sgd, **given)


# Everything below runs inside a contestant's process.

Steps = Generator[None, Any, None]
"""A generator that is sent the loss of every step."""


def serve(order: dict[str, Any], turn: Path) -> None:
    """Run one contestant. Its answers go to the real standard output; what libraries print goes to standard error."""
    from throughline import frameworks
    from throughline.frameworks.rank import load
    from throughline.processes import die_with_parent

    die_with_parent(os.getppid(), signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spec = frameworks.specification(order["spec"])
    kind = load(spec.framework)  # its libraries are loaded before its turn

    def say(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")

    with turn.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            rank, batches, loss = built(kind, spec, order)
            loop = steps(rank, loss, say, held.close)
            if rank.own_step:
                rank.drive(loop, lambda: [batches()], None)
            else:
                next(loop)
                while True:
                    loop.send(rank.step([batches()]))
        except BaseException as error:
            say(failed=f"{type(error).__name__}: {error}".splitlines()[0][:300])
            raise


def built(kind: Any, spec: RunSpec, order: dict[str, Any]) -> tuple[Any, Callable[[], Any], float | None]:
    """Return a rank that is ready to train, a function that returns its next batch, and the first batch's loss."""
    import torch

    from throughline import workloads

    torch._dynamo.config.recompile_limit = 64
    workload = workloads.of(spec.model)
    arrays = [workload.synthetic(spec.batch_size, spec, seed) for seed in range(BATCHES)]
    if order.get("modules"):
        from loops.torch_modules import Rank

        rank: Any = Rank(spec)
        return rank, itertools.cycle([rank.batch(each) for each in arrays]).__next__, None
    alien, facts = spec.framework != "torch", workload.facts(None)
    if alien and workloads.folder(spec.model) == "resnet":
        import resnet_in_transformers

        resnet_in_transformers.register()
    rank = kind(spec, 0, 0, 1, spec.device)
    rank.join()
    rank.device()
    rank.model(facts)
    if alien:
        same = workloads.form(spec.model, "torch")
        torch.manual_seed(spec.seed)
        rank.load(same.weights(same.build(spec, facts)))
    first = {name: torch.from_numpy(array).to(rank.at) for name, array in arrays[0].items()}
    loss = first_loss(rank, first)
    made = [rank.deliver(rank.data(each)) for each in arrays]
    if spec.framework == "hf-loop":  # the library's arguments are made before the clock starts
        made = [rank.network.inputs(**batch) for batch in made]
        rank.network.inputs = dict
    rank.optimizer()
    return rank, itertools.cycle(made).__next__, loss


def first_loss(rank: Any, batch: dict[str, Any]) -> float:
    """Return the loss of a batch without dropout, in eager mode.

    ResNet has no dropout and stays in training mode, so that its norms use the batch's statistics.
    """
    import torch

    spec, network = rank.spec, rank.network.to(rank.at)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(spec.precision) if spec.framework != "torch" else None
    network.train(spec.model.startswith("resnet"))
    autocast = torch.autocast(rank.kind, dtype=half, enabled=half is not None)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), autocast:
        loss = float(network(**batch))
    network.train()
    if rank.own_step:
        rank.passed.clear()  # the Trainer's rank has noted this loss as that of a step
    return loss


def steps(rank: Any, loss: float | None, say: Callable[..., None], leave_turn: Callable[[], None]) -> Steps:
    """Count the steps, without end: three of warm-up, then as many as each question asks for.

    On a GPU each question begins with a step that is not timed, because it has to allocate memory again.
    """
    for _ in range(3):
        yield
    release(rank)
    leave_turn()
    say(loss=loss)
    for question in sys.stdin:
        what, count = question.split()
        if rank.kind == "cuda":
            yield
        rank.sync()
        if what == "profile":
            yield from profiled(rank, int(count), say)
        else:
            start = {clock: now() for clock, now in harness.CLOCKS.items()}
            for _ in range(int(count)):
                yield
            rank.sync()
            taken = {clock: now() - start[clock] for clock, now in harness.CLOCKS.items()}
            say(**taken, peak_memory_bytes=rank.memory()["reserved_bytes"])
        release(rank)


def release(rank: Any) -> None:
    """Release the memory that a step needs, so that the other contestants can use it."""
    import torch

    rank.sync()
    if rank.kind == "cuda":
        torch.cuda.empty_cache()


KINDS = {
    "attention": ("flash", "fmha", "attention", "sdpa"),  # first, because their names also mention matrix products
    "matrix products": ("gemm", "cutlass", "nvjet", "xmma", "cublas", "splitk"),
    "optimizer": ("adam", "multi_tensor", "lamb"),
    "copies": ("memcpy", "memset"),
}
"""Kind of kernel -> what its name contains. All other kernels are passes over memory (norms, GELU, dropout, casts)."""


def profiled(rank: Any, count: int, say: Callable[..., None]) -> Steps:
    from torch.profiler import ProfilerActivity, profile

    gpu = rank.kind == "cuda"
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as seen:
        for _ in range(count):
            yield
        rank.sync()
        wall = time.perf_counter() - start
    seconds: dict[str, float] = {"wall": wall / count}
    for event in seen.key_averages():
        taken = event.self_device_time_total if gpu else event.self_cpu_time_total
        name = event.key.lower()
        kind = next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "passes")
        seconds[kind] = seconds.get(kind, 0.0) + taken / 1e6 / count
    say(kernels=seconds)


if __name__ == "__main__":
    with suppress(StopIteration):  # nobody asks any more
        serve(json.loads(sys.argv[1]), Path(sys.argv[2]))
