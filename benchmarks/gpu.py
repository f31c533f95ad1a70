"""Check the training step on one GPU, then measure it. The results are one JSON file and one Markdown file.

    python benchmarks/gpu.py                        BERT: under nine minutes on one GPU; writes gpu.json and gpu.md here
    python benchmarks/gpu.py --workload gpt2        GPT-2, as long again; writes gpu-gpt2.json and gpu-gpt2.md
    python benchmarks/gpu.py --workload resnet50    ResNet-50; writes gpu-resnet50.json and gpu-resnet50.md
    python benchmarks/gpu.py --output FOLDER --shards data/<corpus>/seq128/manifest.json
    python benchmarks/gpu.py --device cpu --dry     the same script with tiny sizes: minutes, figures without a meaning

The script has five parts, in this order. Each part has its own time limit in seconds. Both files are written again
after every row, so the results so far stay, whatever happens later. If a row fails or runs out of memory, the files say
so and the next row begins. If a process dies, only one row is lost.

1. card      name, driver, versions; the measured speed of the fastest matrix product in each precision, and the
             measured bandwidth of the memory
2. checks    losses of the first steps in every precision, compiled, recorded and unpadded, compared with fp32 on the
             same data
3. rows      the table: our step, Hugging Face's Trainer and a plain loop, in turn (contest.py), and what limits our
             step; a rival whose loss differs from ours is left out
4. real      HDF5 shards (made here, if none are given), compared with the same batches on the device, with full
             batches, and with only the real tokens; BERT only
5. matrix    batch sizes until memory runs out x precisions x compiled x recomputed activations

The script needs Python 3.11, torch 2.11 and numpy, or newer, and no network. The rivals need transformers 5.17 (and
accelerate for its Trainer). The shards need h5py. The script does not measure the memory that sharding saves, because
one card cannot shard: the records of runs on several GPUs have it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from contest import Case, Contestant, Failed, is_out_of_memory, ratio, take_turns  # noqa: E402
from gpu_parts import PARTS, TOLERANCE, cell, first_line, named  # noqa: E402
from gpu_table import markdown  # noqa: E402

from throughline import gpus, workloads  # noqa: E402
from throughline.processes import die_with_parent  # noqa: E402
from throughline.workloads import bert, gpt2  # noqa: E402

ALL_S = 525
"""Seconds for everything. What does not fit into this time is recorded as not measured."""
GRACE_S = 10
"""So many seconds after that the script ends, wherever it is. All results are written by then."""


@dataclass(frozen=True)
class Row:
    """A line of the table. `floor`, `target` and `stretch` in samples/s are roofline estimates for one H200.

    GPT-2's floor is the highest published figure for one H100 (llm.c: 468,000 tokens/s), its target 520,000 tokens/s.
    ResNet-50's floor is also published (Lambda: 3,079 images/s on one H100). MLPerf's entries reach 7,945 per GPU.
    """

    model: str
    batch: int
    precision: str
    rivals: tuple[str, ...] = ("trainer", "plain")
    floor: int | None = None
    target: int | None = None
    stretch: int | None = None
    limit_s: float = 50
    graph: bool = False


@dataclass(frozen=True)
class Real:
    """Samples that are read from shards. If the shards are made here, a share `full` of the samples has every token,
    and the others have a random length."""

    sequence: int
    predictions: int
    batch: int
    full: float
    rivals: tuple[str, ...]
    shards: tuple[int, int] = (4, 8192)
    limit_s: float = 70


@dataclass(frozen=True)
class Plan:
    """What the script does: full size on a GPU, or tiny (`--dry`). `matrix`: precision, compiled, recomputed, batch
    sizes."""

    rows: list[Row]
    sequence: int
    predictions: int
    check: tuple[str, int]
    check_steps: int
    checks: list[tuple[str, bool, str]]
    matrix_model: str
    matrix: list[tuple[str, bool, bool, list[int]]]
    seconds: float
    rounds: int
    peak_sizes: list[int]
    copy_bytes: int
    real_model: str
    real: list[Real]
    card_s: float = 60
    checks_s: float = 90
    image: int = 224

    @property
    def sizes(self) -> dict[str, int]:
        """The arguments of a case that set sizes."""
        return {"sequence": self.sequence, "predictions": self.predictions, "image": self.image}


CHECKS = [
    *((precision, False, "full") for precision in ("fp32", "tf32", "bf16", "fp16")),
    *((precision, False, "packed") for precision in ("fp32", "bf16")),
]
COMPILED_CHECKS = [("bf16", True, "full"), ("bf16", True, "packed"), ("fp32", True, "full")]
SIZES = [32, 64, 128, 256, 512, 1024]
FEW = [32, 256]
FULL = Plan(
    rows=[
        Row("bert-base", 256, "bf16", ("trainer", "plain", "plain compiled"), 5700, 6500, 7070, limit_s=95),
        Row("bert-base", 32, "bf16", ("trainer", "plain", "ours again"), 4300, 5400, 6000, graph=True),
        Row("bert-large", 256, "bf16", ("trainer", "plain"), 1720, 1970, 2140, limit_s=60),
        Row("bert-base", 256, "tf32", ("trainer", "plain"), 2700, 3200, None),
        Row("bert-base", 256, "fp32", ("plain",), 600, 700, None),
    ],
    sequence=128, predictions=20, check=("bert-base", 32), check_steps=8, checks=CHECKS + COMPILED_CHECKS,
    matrix_model="bert-base",
    matrix=[
        ("bf16", False, False, SIZES), ("fp16", False, False, SIZES), ("tf32", False, False, SIZES),
        ("fp32", False, False, SIZES), ("bf16", False, True, SIZES), ("bf16", True, False, SIZES),
        ("tf32", True, False, FEW), ("fp32", True, False, FEW), ("fp16", True, False, FEW), ("bf16", True, True, FEW),
        ("tf32", False, True, FEW), ("fp32", False, True, FEW), ("fp16", False, True, FEW),
        ("tf32", True, True, FEW), ("fp32", True, True, FEW), ("fp16", True, True, FEW),
    ],
    seconds=0.5, rounds=5, peak_sizes=[4096, 8192, 12288],
    copy_bytes=4 << 30, real_model="bert-base",
    real=[
        Real(128, 20, 256, full=0.8, rivals=("resident", "unpadded", "full length")),
        Real(512, 80, 64, full=0.4, rivals=("unpadded", "unpadded, not compiled"), shards=(2, 2048), limit_s=60),
    ],
)  # fmt: skip
PICTURES = [64, 128, 256, 512]
RESNET = Plan(
    rows=[
        Row("resnet50", 256, "bf16", ("plain", "plain compiled", "ours again"), 3079, 4500, limit_s=140),
        Row("resnet50", 256, "bf16", ("plain compiled",), 3079, 4500, limit_s=80, graph=True),
        Row("resnet50", 256, "tf32", ("plain",), limit_s=80),
        Row("resnet50", 128, "fp32", ("plain",), limit_s=60),
    ],
    sequence=0, predictions=0, check=("resnet50", 32), check_steps=2,
    checks=[*CHECKS[:4], ("bf16", True, "full"), ("fp32", True, "full")], matrix_model="resnet50",
    matrix=[
        ("bf16", True, False, PICTURES), ("bf16", False, False, PICTURES), ("fp16", True, False, PICTURES[1:3]),
        ("tf32", True, False, PICTURES[1:3]), ("fp32", True, False, PICTURES[1:2]),
    ],
    seconds=0.5, rounds=5, peak_sizes=[8192], copy_bytes=4 << 30, real_model="", real=[], card_s=45, checks_s=120,
)  # fmt: skip
SOME = [8, 16, 32, 64]
GPT2 = Plan(
    rows=[
        Row("gpt2-small", 32, "bf16", ("trainer", "plain compiled"), 457, 508, limit_s=120),
        Row("gpt2-small", 64, "bf16", ("plain compiled", "ours again"), 457, 508, limit_s=75),
        Row("gpt2-small", 16, "bf16", ("plain compiled",), 457, 508, limit_s=60),
        Row("gpt2-medium", 16, "bf16", ("plain compiled",), limit_s=80),
    ],
    sequence=1024, predictions=0, check=("gpt2-small", 4), check_steps=8,
    checks=[*CHECKS[:4], ("bf16", True, "full")], matrix_model="gpt2-small",
    matrix=[
        ("bf16", True, False, SOME), ("bf16", True, True, SOME), ("bf16", False, False, SOME),
        ("tf32", True, False, [8, 16]), ("fp16", True, False, [8, 16]), ("fp32", True, False, [8]),
    ],
    seconds=0.5, rounds=5, peak_sizes=[8192], copy_bytes=4 << 30, real_model="", real=[], card_s=45, checks_s=90,
)  # fmt: skip
DRY = Plan(
    rows=[Row("bert-tiny", 2, "bf16", limit_s=240), Row("bert-tiny", 2, "tf32", ())],
    sequence=32, predictions=5, check=("bert-tiny", 2), check_steps=2, checks=CHECKS, matrix_model="bert-tiny",
    matrix=[
        ("bf16", False, False, [2, 4, 1 << 34, 1 << 35]), ("tf32", False, False, [2]), ("fp32", False, True, [2]),
    ],
    seconds=0.01, rounds=2, peak_sizes=[128], copy_bytes=1 << 22, real_model="bert-tiny",
    real=[Real(32, 5, 4, full=0.8, rivals=("resident", "unpadded", "full length"), shards=(2, 64), limit_s=240)],
    card_s=240, checks_s=240,
)  # fmt: skip


DRY_GPT2 = replace(
    DRY, rows=[Row("gpt2-tiny", 2, "bf16", ("plain",), limit_s=240)], check=("gpt2-tiny", 2), checks=CHECKS[:3:2],
    matrix_model="gpt2-tiny", matrix=[("bf16", False, True, [2])], real=[],
)  # fmt: skip
DRY_RESNET = replace(
    DRY, rows=[Row("resnet-tiny", 2, "bf16", ("plain",), limit_s=240)], check=("resnet-tiny", 4), checks=CHECKS[:3:2],
    matrix_model="resnet-tiny", matrix=[("bf16", False, False, [2])], real=[], image=64,
)  # fmt: skip
PLANS = {"bert": (FULL, DRY), "gpt2": (GPT2, DRY_GPT2), "resnet50": (RESNET, DRY_RESNET)}


class Results:
    """The content of the JSON file, as it grows. `save` writes the JSON file and the table again."""

    def __init__(self, folder: Path, device: str, dry: bool, name: str = "gpu") -> None:
        self.folder, self.name, self.start = folder, name, time.monotonic()
        self.value: dict[str, Any] = {
            "schema": 1, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": device, "dry": dry,
            "python": platform.python_version(), "seconds": None, "card": {}, "checks": [], "rows": [], "real": [],
            "matrix": [], "failures": [],
        }  # fmt: skip

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def save(self) -> None:
        self.value["seconds"] = round(self.elapsed(), 1)
        for kind, text in ("json", json.dumps(self.value, indent=1)), ("md", markdown(self.value)):
            name = f"{self.name}.{kind}"
            partial = self.folder / f".{name}"
            partial.write_text(text + "\n", encoding="utf-8")
            partial.replace(self.folder / name)

    def failed(self, part: str, error: BaseException | str) -> None:
        reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.value["failures"].append({"part": part, "reason": reason})
        print(f"{part}: {reason}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--workload", choices=list(PLANS), default="bert")
    parser.add_argument("--dry", action="store_true", help="use tiny sizes")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the results")
    parser.add_argument("--shards", type=Path, help="a manifest of training shards; otherwise shards are made")
    parser.add_argument("--seconds", type=float, default=ALL_S, help="seconds for the whole script")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    plan = PLANS[given.workload][given.dry]
    if given.child:
        die_with_parent(os.getppid(), signal.SIGKILL)
        part, arguments = given.child
        for line in PARTS[part](plan, given.device, json.loads(arguments)):
            print(json.dumps(line), flush=True)
        return 0
    given.output.mkdir(parents=True, exist_ok=True)
    name = "gpu" if given.workload == "bert" else f"gpu-{given.workload}"
    results = Results(given.output, given.device, given.dry, name)
    Alarm(given.seconds + GRACE_S, lambda: os._exit(2))
    with tempfile.TemporaryDirectory(prefix="throughline-gpu-") as folder:
        run = Run(plan, given, results, Path(folder))
        for part in (run.card, run.checks, run.rows, run.real, run.matrix):
            try:
                part()
            except Exception as error:
                results.failed(part.__name__, error)
            results.save()
    print((given.output / f"{name}.md").read_text())
    passed = [check["passed"] for check in results.value["checks"]]
    return 0 if True in passed and False not in passed else 1


class Run:
    """Run the parts: start their processes, set limits, and collect their results. This process uses no device."""

    script = Path(__file__)

    def __init__(self, plan: Plan, given: argparse.Namespace, results: Results, folder: Path) -> None:
        self.plan, self.given, self.results, self.folder = plan, given, results, folder
        self.value = results.value
        self.fault: str | None = None

    def left(self, wanted: float) -> float:
        return min(wanted, float(self.given.seconds) - self.results.elapsed())

    def child(self, part: str, limit_s: float, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Run a part in its own process; yield its lines until it ends or its time is over."""
        if limit_s < 1:
            self.results.failed(part, "out of time")
            return
        command = [sys.executable, str(self.script), "--device", self.given.device, "--workload", self.given.workload]
        command += ["--child", part, json.dumps(arguments)]
        errors = self.folder / f"{part}.err"
        with errors.open("w") as stream, subprocess.Popen(
            command + (["--dry"] if self.given.dry else []), stdout=subprocess.PIPE, stderr=stream, text=True
        ) as process:  # fmt: skip
            assert process.stdout
            killer = Alarm(limit_s, process.kill)
            try:
                for line in process.stdout:
                    yield json.loads(line)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
            finally:
                killer.cancel()
                process.kill()
        if killer.rang:
            self.results.failed(part, f"stopped after {limit_s:.0f} s")
        elif process.returncode != 0:
            last = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()][-1:]
            self.fault = last[0][:300] if last else f"exit status {process.returncode}"
            self.results.failed(part, self.fault)

    def pieces(self, part: str, work: list[Any], limit_s: float, **arguments: Any) -> Iterator[tuple[Any, Any, str]]:
        """Yield (piece of work, its line or None, why there is no line) for every piece.

        A process that dies has died on the piece after its last line. The next process continues after that piece.
        """
        end = time.monotonic() + limit_s
        left = [list(one) for one in work]
        while left and end - time.monotonic() > 1:
            limit, self.fault = end - time.monotonic(), None
            for line in self.child(part, limit, work=left, seconds=limit - 8, **arguments):
                left.remove(line["work"])
                yield line["work"], line, ""
            if self.fault is None:
                break
            if left:
                yield left.pop(0), None, self.fault
        for one in left:
            yield one, None, "out of time"

    def card(self) -> None:
        for line in self.child("card", self.left(self.plan.card_s)):
            self.value["card"] |= line
            self.results.save()
        if driver := gpus.driver():
            self.value["card"]["driver"] = driver

    def checks(self) -> None:
        for (precision, compiled, text), line, why in self.pieces(
            "checks", self.plan.checks, self.left(self.plan.checks_s)
        ):
            lost = {
                "what": named(precision, compiled, text), "loss": [], "largest_difference": None, "reason": why,
                "tolerance": TOLERANCE[precision], "passed": None if why == "out of time" else False,
            }  # fmt: skip
            one = line or lost
            verdict = {True: "passed", False: "FAILED", None: "not measured"}[one["passed"]]
            print(f"check {one['what']}: {verdict}", flush=True)
            self.value["checks"].append(one)
            self.results.save()

    def case(self, row: Row) -> Case:
        gpu = self.given.device == "cuda"
        options = {"compile": gpu, "graph": gpu and row.graph}
        return Case(row.model, row.batch, row.precision, self.given.device, **self.plan.sizes, options=options)

    def rows(self) -> None:
        for row in self.plan.rows:
            limit = self.left(row.limit_s)
            name = f"{row.model}, batch {row.batch}, {row.precision}"
            print(f"{name} ...", flush=True)
            try:
                found = self._row(row, limit) if limit > 15 else {"status": "not measured", "reason": "out of time"}
            except Exception as error:
                found = {"status": "failed", "reason": first_line(error)}
            self.value["rows"].append({"name": name, **vars(row), **found})
            self.results.save()

    def _row(self, row: Row, limit_s: float) -> dict[str, Any]:
        case = self.case(row)
        eager = replace(case, options={**case.options, "compile": False, "graph": False})
        kinds = {
            "trainer": ("trainer", eager), "plain": ("plain", eager), "plain compiled": ("plain", case),
            "ours again": ("ours", case),
        }  # fmt: skip
        asked = {"ours": ("ours", case), **{label: kinds[label] for label in row.rivals}}
        found = self._contest(asked, limit_s, profile=True)
        if found["status"] == "ok":
            flops = float(workloads.of(row.model).flops_per_sample(case.spec(), case.facts, {}))
            speed = row.batch / found["seconds"]["ours"]
            found |= shares(self.value["card"], row.precision, speed * flops, traffic(row, case), speed / row.batch)
            found["samples_per_s"] = {label: row.batch / one for label, one in found["seconds"].items()}
            has_tokens = "tokens" in workloads.of(row.model).units
            found["tokens_per_s"] = speed * case.sequence if has_tokens else None
        return found

    def _contest(self, asked: dict[str, tuple[str, Case]], limit_s: float, profile: bool = False) -> dict[str, Any]:
        """Measure all contestants that got ready. If `ours` did not get ready, there is no row."""
        end, turn = time.monotonic() + limit_s, self.folder / "turn"
        every = [Contestant(name, case, turn, label=label, end=end) for label, (name, case) in asked.items()]
        refused: dict[str, str] = {}
        losses: dict[str, float | None] = {}
        try:
            for one in every:
                try:
                    losses[one.label] = one.ready(max(1.0, end - 10 - time.monotonic())).get("loss")
                except Failed as error:
                    refused[one.label] = str(error)
            if "ours" in refused:
                memory = is_out_of_memory(refused["ours"])
                return {"status": "out of memory" if memory else "failed", "reason": refused["ours"]}
            own, tolerance = losses.get("ours"), TOLERANCE[asked["ours"][1].precision]
            for label, loss in losses.items():
                if own and loss and abs(loss / own - 1) > tolerance:
                    refused[label] = f"computes another loss: {loss:.4f} instead of {own:.4f}"
            there = [one for one in every if one.label not in refused]
            rounds: list[dict[str, float]] = []
            while not rounds:
                try:
                    rounds = take_turns(there, self.plan.rounds, self.plan.seconds, end - 5)
                except Failed as error:
                    if error.label == "ours":
                        raise
                    refused[error.label] = str(error)
                    there = [one for one in there if one.label != error.label]
            seconds = {one.label: median(each[one.label] for each in rounds) for one in there}
            kernels = None
            if profile and self.given.device == "cuda":
                try:
                    kernels = there[0].profile()
                except Failed as error:  # the row is measured by now
                    self.results.failed("profile", f"{asked['ours'][1].model}: {error}")
        except Failed as error:
            return {"status": "failed", "reason": str(error), "refused": refused}
        finally:
            for one in every:
                one.close()
        others = [label for label in seconds if label != "ours"]
        return {
            "status": "ok", "reason": None, "seconds": seconds, "loss": losses, "refused": refused,
            "ratios": {label: ratio(rounds, label, "ours") for label in others}, "kernels": kernels,
            "peak_memory_bytes": {one.label: one.peak_memory_bytes for one in there}, "rounds": rounds,
        }  # fmt: skip

    def real(self) -> None:
        for real in self.plan.real:
            name = f"{self.plan.real_model}, batch {real.batch}, bf16, {real.sequence} tokens"
            print(f"real text: {name} ...", flush=True)
            limit = self.left(real.limit_s)
            missed = {"status": "not measured", "reason": "out of time"}
            try:
                found = self._real(real, limit) if limit > 15 else missed
            except Exception as error:
                found = {"status": "failed", "reason": first_line(error)}
            self.value["real"].append({"name": name, "batch": real.batch, "sequence": real.sequence, **found})
            self.results.save()

    def _real(self, real: Real, limit_s: float) -> dict[str, Any]:
        vocabulary, manifest = bert.VOCABULARY, self.given.shards
        start = time.monotonic()
        content = json.loads(manifest.read_text()) if manifest else {}
        predictions = real.predictions
        if manifest and content["sequence"] == real.sequence:
            vocabulary, predictions = content["vocabulary"]["size"], content["predictions"]
        else:
            manifest = make_shards(self.folder, real, vocabulary)
        row = Row(self.plan.real_model, real.batch, "bf16")
        full = replace(
            self.case(row), sequence=real.sequence, predictions=predictions, vocabulary=vocabulary
        )  # fmt: skip
        case = replace(full, manifest=str(manifest))

        def with_(**options: Any) -> tuple[str, Case]:
            return "ours", replace(case, options={**case.options, **options})

        gpu = self.given.device == "cuda"
        kinds = {
            "resident": with_(data="resident"), "full length": ("ours", full),
            "unpadded": with_(unpadded=True, compile=gpu),
            "unpadded, not compiled": with_(unpadded=True, compile=False),
        }  # fmt: skip
        asked = {"ours": ("ours", case), **{label: kinds[label] for label in real.rivals}}
        found = self._contest(asked, limit_s - (time.monotonic() - start))
        share = real_token_share(manifest)
        if found["status"] == "ok":
            speeds = {label: real.batch / seconds for label, seconds in found["seconds"].items()}
            tokens = {label: speed * real.sequence * share for label, speed in speeds.items() if label != "full length"}
            found |= {"samples_per_s": speeds, "real_tokens_per_s": tokens}
        return {"real_token_share": share, "given": manifest == self.given.shards, **found}

    def matrix(self) -> None:
        work = [(*combination, batch) for *combination, batches in self.plan.matrix for batch in batches]
        limit = self.left(1e9)
        for (*combination, batch), line, why in self.pieces("matrix", work, limit if limit > 20 else 0):
            status = "not measured" if why == "out of time" else "failed"
            self.value["matrix"].append(line or cell(combination, batch, status, reason=why))
            self.results.save()


class Alarm:
    """Call `action` after some seconds, unless cancelled. `rang` says whether it was called."""

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        import threading

        self.rang = False

        def ring() -> None:
            self.rang = True
            action()

        self.timer = threading.Timer(max(1.0, seconds), ring)
        self.timer.daemon = True
        self.timer.start()
        self.cancel = self.timer.cancel


def traffic(row: Row, case: Case) -> float | None:
    """Estimate the bytes that a step reads and writes at least. None for ResNet.

    The estimate counts 16 activations of H per token and layer, written and read once in the forward and twice in the
    backward pass. It adds what the optimizer touches: it reads weight, gradient, mean and square, writes three of them,
    and writes a copy in a half type.
    """
    if case.optimizer["name"] == "sgd":
        return None
    module = gpt2 if row.model in gpt2.SHAPES else bert
    shape, width = module.SHAPES[row.model], 2 if row.precision in ("bf16", "fp16") else 4
    activations = row.batch * case.sequence * shape.hidden * 16 * width * 2 * 3 * shape.layers
    table = module.padded(case.facts["vocabulary"]) * shape.hidden
    return activations + (28 + width) * (shape.layers * 12 * shape.hidden**2 + table)


def shares(
    card: dict[str, Any], precision: str, flops: float, step_bytes: float | None, steps: float
) -> dict[str, Any]:
    """Return the shares that our step reaches: of the datasheet's peak (MFU), of the fastest matrix product and of the
    bandwidth that were measured on this card."""
    known = gpus.find(card.get("name") or "")
    peak = known.peak_flops_per_s.get(precision) if known else None
    measured, bandwidth = (card.get("matmul_flops_per_s") or {}).get(precision), card.get("bandwidth_bytes_per_s")
    return {
        "model_flops_per_s": flops,
        "mfu": flops / peak if peak else None,
        "matmul_share": flops / measured if measured else None,
        "bandwidth_share": step_bytes * steps / bandwidth if bandwidth and step_bytes else None,
    }


def make_shards(folder: Path, real: Real, vocabulary: int) -> Path:
    """Make shards in NVIDIA's layout in a new folder, and a manifest beside them; return the manifest's path."""
    import h5py
    import numpy as np

    (count, rows), sequence, predictions = real.shards, real.sequence, real.predictions
    folder = folder / f"seq{sequence}"
    folder.mkdir()
    draw = np.random.Generator(np.random.Philox(key=7))
    entries = []
    for number in range(count):
        lengths = np.where(draw.random(rows) < real.full, sequence, draw.integers(sequence // 4, sequence + 1, rows))
        tokens = np.arange(sequence) < lengths[:, None]
        chosen = np.sort(draw.random((rows, sequence // 4 - 1)).argsort(axis=1)[:, :predictions] + 1, axis=1)
        arrays = {
            "input_ids": (draw.integers(1000, vocabulary, (rows, sequence)) * tokens).astype("i4"),
            "input_mask": tokens.astype("i1"),
            "segment_ids": ((np.arange(sequence) >= lengths[:, None] // 2) & tokens).astype("i1"),
            "masked_lm_positions": chosen.astype("i4"),
            "masked_lm_ids": draw.integers(1000, vocabulary, chosen.shape).astype("i4"),
            "next_sentence_labels": draw.integers(0, 2, rows).astype("i1"),
        }
        path = folder / f"training_{number:04d}.hdf5"
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, compression="gzip", compression_opts=1, shuffle=True)
        entries.append({"file": path.name, "split": "training", "rows": rows})
    content = {
        "sequence": sequence, "predictions": predictions, "vocabulary": {"size": vocabulary}, "shards": entries,
    }  # fmt: skip
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(content))
    return manifest


def real_token_share(manifest: Path) -> float:
    """Return the share of the first training shard's positions that are not padding."""
    from throughline.rank.data import Manifest

    shards = Manifest(manifest, "corpus")
    return float(shards.reader.read(shards.shards[0], 0)["input_mask"].mean())


if __name__ == "__main__":
    sys.exit(main())
