"""Training steps of several contestants, in turn, on the same model, weights, batches, precision and threads.

`ours` is the framework `torch` as a run uses it. `trainer` is Hugging Face's Trainer. `plain` is the loop that one
would write by hand around transformers' own model (hugging_face.py). Each contestant is a separate process. It is built
and warmed up once, and then does some steps whenever it is its turn. While one contestant computes, the others wait on
their standard input.

    contestants = [Contestant("ours", case), Contestant("trainer", case)]
    rounds = take_turns(contestants, rounds=7, seconds=2.0)

This module imports only the standard library. The contestants' processes import torch, transformers and Throughline's
worker side.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from math import comb
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from throughline.spec import RunSpec

ROOT = Path(__file__).resolve().parents[1]
SEED = 42
BATCHES = 4
RESERVED = ("out of memory", "can't allocate memory", "MemoryError", "STATUS_ALLOC_FAILED")
OPTIMIZER = {"name": "adamw", "learning_rate": 1e-4, "weight_decay": 0.01, "betas": [0.9, 0.999], "epsilon": 1e-6}
SGD = OPTIMIZER | {"name": "sgd", "learning_rate": 0.01, "momentum": 0.9}
"""ResNet's optimizer."""


@dataclass(frozen=True)
class Case:
    """What is trained, and how. `options` are those of a run (compile, checkpointing, dropout, clip ...).

    If `vocabulary` is None, the workload's own is used. Only BERT uses `predictions`, and only ResNet uses `image`.
    """

    model: str
    batch: int
    precision: str = "bf16"
    device: str = "cpu"
    sequence: int = 128
    predictions: int = 20
    threads: int = 1
    vocabulary: int | None = None
    manifest: str | None = None
    image: int = 224
    options: dict[str, Any] = field(default_factory=dict)

    def spec(self) -> RunSpec:
        """The case as a run specification."""
        from throughline import frameworks, workloads

        sizes = {"sequence": self.sequence, "predictions": self.predictions, "image": self.image, "classes": 1000}
        own = {one.name for one in fields(workloads.of(self.model).parameters)}
        parameters = {name: value for name, value in {**sizes, "label_smoothing": 0.0}.items() if name in own}
        return frameworks.specification({
            "benchmark": "contest", "framework": "torch", "model": self.model, **parameters, "topology": "1n1g",
            "batch_per_device": self.batch, "precision": self.precision, "seed": SEED, "threads": self.threads,
            "repeat": 1, "optimizer": self.optimizer, "options": {"data": "synthetic", **self.options}, "protocol": 0,
        })  # fmt: skip

    @property
    def optimizer(self) -> dict[str, Any]:
        return SGD if self.model.startswith("resnet") else OPTIMIZER

    @property
    def facts(self) -> dict[str, Any]:
        """What a form of the model needs to know about the data."""
        from throughline import workloads

        return {"vocabulary": self.vocabulary} if self.vocabulary else workloads.of(self.model).facts(None)


class Failed(Exception):
    """A contestant could not be built or did not answer. The message says why, `label` says which one."""

    def __init__(self, reason: str, label: str) -> None:
        super().__init__(reason)
        self.label = label


class Contestant:
    """One contestant's process. `ready` waits until it is built and warmed up; `steps` makes it do some steps."""

    def __init__(
        self, name: str, case: Case, turn: Path, *, label: str | None = None, warmup: int = 3, end: float = float("inf")
    ) -> None:
        """Start the process.

        The contestants of one contest share the file `turn`, so that only one at a time uses the device. We wait for
        no answer beyond `end` (time.monotonic).
        """
        self.name, self.case, self.label, self.end = name, case, label or name, end
        self.clock = "seconds"
        self.peak_memory_bytes: int | None = None
        variables = {"OMP_NUM_THREADS": str(case.threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        # The Trainer would use every GPU that it sees.
        variables["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in `close`)
        self.process = subprocess.Popen(
            [sys.executable, __file__, name, json.dumps(asdict(case)), str(warmup), str(turn)],
            env=os.environ | variables,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1,
        )  # fmt: skip

    def ready(self, limit_s: float = 300) -> dict[str, Any]:
        """Wait until the contestant is warmed up. Return {"loss": loss of the first batch without dropout,
        "versions": ...}."""
        return self._answer(limit_s)

    def steps(self, count: int, limit_s: float = 300) -> float:
        """Return the seconds that `count` steps take, by `clock` (seconds or cpu_seconds). The device is idle before
        and after."""
        answer = self.ask(f"steps {count}", limit_s)
        self.peak_memory_bytes = answer["peak_memory_bytes"]
        return float(answer[self.clock])

    def profile(self, count: int = 3, limit_s: float = 60) -> dict[str, float]:
        """Return the seconds of a step on a GPU by kind of kernel, and in total (`wall`)."""
        found: dict[str, float] = self.ask(f"profile {count}", limit_s)["kernels"]
        return found

    def ask(self, question: str, limit_s: float = 300) -> dict[str, Any]:
        assert self.process.stdin
        try:
            self.process.stdin.write(question + "\n")
        except BrokenPipeError:
            raise Failed(self._last_words(), self.label) from None
        return self._answer(limit_s)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.errors.close()

    def _answer(self, limit_s: float) -> dict[str, Any]:
        assert self.process.stdout
        limit_s = max(0.0, min(limit_s, self.end - time.monotonic()))
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                self.process.kill()
                raise Failed(f"no answer within {limit_s:.0f} s", self.label)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(30)
            raise Failed(self._last_words(), self.label)
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise Failed(answer["failed"], self.label)
        return answer

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = [line for line in self.errors.read().splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"ended with {self.process.poll()}"


def take_turns(contestants: list[Contestant], rounds: int, seconds: float, until: float = float("inf")) -> list[Any]:
    """Return one dict per round: label -> seconds per step. Each turn lasts about `seconds`; the order rotates.

    It stops after the first round that ends later than `until` (time.monotonic), but makes at least two rounds.
    """
    counts = {one.label: max(1, round(seconds / max(one.steps(2) / 2, 1e-4))) for one in contestants}
    found: list[dict[str, float]] = []
    for number in range(rounds):
        turn = number % len(contestants)
        order = contestants[turn:] + contestants[:turn]
        try:
            found.append({one.label: one.steps(counts[one.label]) / counts[one.label] for one in order})
        except Failed:
            if time.monotonic() < until or not found:
                raise
            break  # the time is over; the earlier rounds count
        if time.monotonic() > until and len(found) > 1:
            break
    return found


def ratio(rounds: list[dict[str, float]], slow: str, fast: str) -> dict[str, float]:
    """Return the time of a step of `slow` divided by that of `fast`: the median over rounds, and its interval.

    The true median lies between the rounds `low` and `high` with a probability of 95 % or more, whatever the
    distribution. Of 7 rounds these are the lowest and the highest, of 15 the fourth from either end. With fewer than 6
    rounds they are the whole range.
    """
    each = sorted(one[slow] / one[fast] for one in rounds)
    count = len(each)
    outside, cut = 0.0, -1
    while outside <= 0.05:
        cut += 1
        outside += 2 * comb(count, cut) / 2**count
    cut = max(0, cut - 1)
    return {"median": median(each), "low": each[cut], "high": each[count - 1 - cut], "rounds": count}


def is_out_of_memory(text: str) -> bool:
    return any(words in text for words in RESERVED)


# Everything below runs inside a contestant's process.

Step = Callable[[], Any]


def serve(name: str, case: Case, warmup: int, turn: Path) -> None:
    """Run one contestant. Its answers go to the real standard output; what libraries print goes to standard error."""
    from throughline.processes import die_with_parent

    die_with_parent(os.getppid(), signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch

    if name != "ours":
        import transformers  # noqa: F401 (loaded before its turn)

    torch.manual_seed(SEED)
    torch.set_num_threads(case.threads)
    torch._dynamo.config.recompile_limit = 64
    gpu = case.device == "cuda"
    report: dict[str, Any] = {}

    def say(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")

    def wait() -> None:
        if gpu:
            torch.cuda.synchronize()

    def leave() -> None:
        """Release the memory that a step needs, so that the other contestants can use it."""
        wait()
        if gpu:
            torch.cuda.empty_cache()

    def questions() -> Iterator[int]:
        """Yield the number of steps to make for each question, without end. On a GPU one step comes first that is not
        timed, because it has to allocate memory again."""
        leave()
        held.close()
        say(**report)
        for line in sys.stdin:
            kind, count = line.split()
            if gpu:
                yield 1
            wait()
            if kind == "profile":
                yield from profiled(int(count), say)
            else:
                start, cpu = time.perf_counter(), time.process_time()
                yield int(count)
                wait()
                taken = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
                say(**taken, peak_memory_bytes=peak(case.device))
            leave()

    with turn.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            CONTESTANTS[name](case, report, warmup, questions())
        except BaseException as error:
            say(failed=f"{type(error).__name__}: {error}".splitlines()[0][:300])
            raise


KINDS = {
    "attention": ("flash", "fmha", "attention", "sdpa"),  # first, because their names also mention matrix products
    "matrix products": ("gemm", "cutlass", "nvjet", "xmma", "cublas", "splitk"),
    "optimizer": ("adam", "multi_tensor", "lamb"),
    "copies": ("memcpy", "memset"),
}
"""Kind of kernel -> what its name contains. All other kernels are passes over memory (norms, GELU, dropout, casts)."""


def profiled(count: int, say: Callable[..., None]) -> Iterator[int]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.cuda.is_available()
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as found:
        yield count
        if gpu:
            torch.cuda.synchronize()
        wall = time.perf_counter() - start
    seconds: dict[str, float] = {"wall": wall / count}
    for event in found.key_averages():
        taken = event.self_device_time_total if gpu else event.self_cpu_time_total
        name = event.key.lower()
        kind = next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "passes")
        seconds[kind] = seconds.get(kind, 0.0) + taken / 1e6 / count
    say(kernels=seconds)


def peak(device: str) -> int:
    import torch

    if device == "cuda":
        return int(torch.cuda.max_memory_reserved())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ours(case: Case, report: dict[str, Any], warmup: int, turns: Iterator[int]) -> None:
    """The framework `torch`, called as the worker calls it."""
    import itertools

    from throughline import workloads
    from throughline.frameworks.torch.ddp import TorchDDP
    from throughline.rank.data import Loader, Manifest, batches

    spec, workload = case.spec(), workloads.of(case.model)
    framework = TorchDDP(spec, 0, 0, 1, case.device)
    for stage in (framework.join, framework.device, lambda: framework.model(case.facts)):
        stage()
    if case.manifest:
        manifest = Manifest(Path(case.manifest), str(workload.data), spec.parameters, SEED)
        source = batches(manifest, SEED, 0, 1, case.batch)
        loader = Loader(source, lambda rows: framework.data(workload.batch(rows, spec.options)))
        if case.options.get("data") == "resident":
            made = [loader.next() for _ in range(BATCHES)]
            loader.close()
            following = itertools.cycle([framework.deliver(one) for one in made]).__next__
        else:

            def following() -> Any:
                return framework.deliver(loader.next())
    else:
        made = [framework.data(arrays) for arrays in synthetic(case)]
        following = itertools.cycle([framework.deliver(one) for one in made]).__next__
        report["loss"] = _loss(framework, made[0], case)
    framework.optimizer()
    report["versions"] = framework.versions()
    for _ in range(warmup):
        framework.step([following()])
    for count in turns:
        for _ in range(count):
            framework.step([following()])


def _loss(framework: Any, batch: Any, case: Case) -> float:
    """Return the loss of a batch without dropout, in eager mode. ResNet has no dropout and stays in training mode, so
    that its norms use the batch's statistics."""
    import torch

    network = framework.network.train(case.optimizer is SGD)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        loss = float(network(**framework.deliver(batch)))
    network.train()
    return loss


def plain(case: Case, report: dict[str, Any], warmup: int, turns: Iterator[int]) -> None:
    """transformers' model in a plain loop: autocast, PyTorch's fused AdamW or SGD, batches on the device."""
    import hugging_face
    import torch

    network, batches = hugging_face.network(case), [_to(batch, case.device) for batch in hugging_face.batches(case)]
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(case.precision)
    torch.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    kind, constants = _their_optimizer(case)
    update = kind(network.parameters(), **constants)
    scaler = torch.amp.GradScaler(case.device, enabled=half is torch.float16)
    report["loss"] = _their_loss(network, batches[0], case, half)
    model = torch.compile(network) if case.options.get("compile") else network

    def step(batch: Any) -> None:
        with torch.autocast(case.device, dtype=half, enabled=half is not None):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()
        update.zero_grad(set_to_none=True)

    for number in range(warmup):
        step(batches[number % BATCHES])
    for count in turns:
        for number in range(count):
            step(batches[number % BATCHES])


def trainer(case: Case, report: dict[str, Any], warmup: int, turns: Iterator[int]) -> None:
    """Hugging Face's Trainer with its own optimizer, loop and loader, but without clipping, logging and saving."""
    import hugging_face
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    network = hugging_face.network(case)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(case.precision)
    batches = hugging_face.batches(case)
    report["loss"] = _their_loss(network, _to(batches[0], case.device), case, half)
    rows = [{key: tensor[row] for key, tensor in batch.items()} for batch in batches for row in range(case.batch)]

    class Turns(TrainerCallback):
        """Stop the loop before the first step of a turn until somebody asks for steps."""

        left = warmup

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if self.left == 0:
                self.left = next(turns)
            self.left -= 1

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=case.batch, max_steps=10**9, max_grad_norm=0.0,
            bf16=case.precision == "bf16", fp16=case.precision == "fp16", optim="adamw_torch_fused",
            tf32=case.precision == "tf32" if case.device == "cuda" else None, use_cpu=case.device == "cpu",
            learning_rate=OPTIMIZER["learning_rate"], weight_decay=OPTIMIZER["weight_decay"],
            adam_epsilon=OPTIMIZER["epsilon"], lr_scheduler_type="constant", seed=SEED, report_to="none",
            logging_strategy="no", save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
            torch_compile=bool(case.options.get("compile")),
        )  # fmt: skip
        sgd = _their_optimizer(case) if case.optimizer is SGD else None
        own = {"train_dataset": rows, "callbacks": [Turns()], "optimizer_cls_and_kwargs": sgd}
        Trainer(model=network, args=arguments, **own).train()


CONTESTANTS: dict[str, Callable[[Case, dict[str, Any], int, Iterator[int]], None]] = {
    "ours": ours,
    "plain": plain,
    "trainer": trainer,
}


def synthetic(case: Case) -> list[dict[str, Any]]:
    from throughline import workloads

    return [workloads.of(case.model).synthetic(case.batch, case.spec(), seed) for seed in range(BATCHES)]


def _their_optimizer(case: Case) -> tuple[Any, dict[str, Any]]:
    """Return the optimizer's class and its constants."""
    import torch

    own = case.optimizer
    constants = {"lr": own["learning_rate"], "weight_decay": own["weight_decay"], "fused": True}
    if own is SGD:
        return torch.optim.SGD, constants | {"momentum": own["momentum"]}
    return torch.optim.AdamW, constants | {"betas": tuple(own["betas"]), "eps": own["epsilon"]}


def _their_loss(network: Any, batch: Any, case: Case, half: Any) -> float:
    import torch

    network.train(case.optimizer is SGD)
    with torch.no_grad(), torch.autocast(case.device, dtype=half, enabled=half is not None):
        loss = float(network(**batch).loss)
    network.train()
    return loss


def _to(batch: dict[str, Any], device: str) -> dict[str, Any]:
    return {name: tensor.to(device) for name, tensor in batch.items()}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    given = json.loads(sys.argv[2])
    serve(sys.argv[1], Case(**given), int(sys.argv[3]), Path(sys.argv[4]))
