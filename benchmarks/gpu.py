"""Check the training step on one GPU, then measure it. The results are one JSON file and one Markdown file.

    python benchmarks/gpu.py                        BERT: under nine minutes on one GPU; writes gpu.json and gpu.md here
    python benchmarks/gpu.py --workload gpt2        GPT-2, as long again; writes gpu-gpt2.json and gpu-gpt2.md
    python benchmarks/gpu.py --workload resnet50    ResNet-50; writes gpu-resnet50.json and gpu-resnet50.md
    python benchmarks/gpu.py --workload parts       attention by kernel and the head's loss alone; our step eager, as
                                                    a graph, with LAMB; writes gpu-parts.json and gpu-parts.md
    python benchmarks/gpu.py --output FOLDER --shards data/<corpus>/seq128/manifest.json
    python benchmarks/gpu.py --device cpu --dry     the same script with tiny sizes: minutes, figures without a meaning

The script has five parts, in this order. Each part has its own time limit in seconds. Both files are written again
after every row, so the results so far stay, whatever happens later. If a row fails or runs out of memory, the files say
so and the next row begins. If a process dies, only one row is lost.

1. card      name, driver, versions; the measured speed of the fastest matrix product in each precision, and the
             measured bandwidth of the memory
2. checks    losses of the first steps in every precision, compiled, recorded and without padding, compared with fp32
             on the same data
   pieces    only with `--workload parts`: pieces of a step alone, each way to compute them
3. rows      the table: our step, Hugging Face's Trainer and a plain loop, in turn (contestants.py), and what limits
             our step; a rival whose loss differs from ours is left out
4. real      HDF5 shards (made here, if none are given), compared with the same batches on the device, with full
             batches, and with only the real tokens; BERT only
5. matrix    batch sizes until memory runs out x precisions x compiled x recomputed activations

The script needs Python 3.11 or newer, torch and numpy (envs/main.txt has the versions), and no network. The rivals need
transformers (and accelerate for its Trainer). The shards need h5py. The script does not measure the memory that
sharding saves, because one card cannot shard: the records of runs on several GPUs have it.
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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpu_expected
import harness
from contestants import Asked, contest, real_token_share
from gpu_parts import PARTS, TOLERANCE, cell, first_line, make_shards, named, reached
from gpu_plans import PLANS, Plan, Real, Row
from gpu_table import markdown

from throughline import memory
from throughline.processes import die_with_parent

if TYPE_CHECKING:
    from throughline.spec import RunSpec

ALL_S = 525
"""Seconds for everything. What does not fit into this time is recorded as not measured."""
GRACE_S = 10
"""So many seconds after that the script ends, wherever it is. All results are written by then."""


class Results:
    """The content of the JSON file, as it grows. `save` writes the JSON file and the table again."""

    def __init__(self, folder: Path, device: str, dry: bool, name: str = "gpu") -> None:
        self.folder, self.name, self.start = folder, name, time.monotonic()
        self.value: dict[str, Any] = {
            "schema": 1, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": device, "dry": dry,
            "python": platform.python_version(), "seconds": None, "card": {}, "checks": [], "rows": [], "real": [],
            "matrix": [], "pieces": [], "failures": [],
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
    parser = harness.options(__doc__)
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
        sys.stderr.flush()
        os._exit(0)  # threads of CUDA's libraries that still run would end this process with an error
    given.output.mkdir(parents=True, exist_ok=True)
    name = "gpu" if given.workload == "bert" else f"gpu-{given.workload}"
    results = Results(given.output, given.device, given.dry, name)
    Alarm(given.seconds + GRACE_S, lambda: os._exit(2))
    with tempfile.TemporaryDirectory(prefix="throughline-gpu-") as folder:
        run = Run(plan, given, results, Path(folder))
        for part in (run.card, run.checks, run.pieces_alone, run.rows, run.real, run.matrix):
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
        """Yield (piece of work, its line or None, the reason why there is no line) for every piece.

        A process that dies has died on the piece after its last line. The next process continues after that piece.
        """
        end = time.monotonic() + limit_s
        left = [list(piece) for piece in work]
        while left and end - time.monotonic() > 1:
            limit, self.fault = end - time.monotonic(), None
            for line in self.child(part, limit, work=left, seconds=limit - 8, **arguments):
                left.remove(line["work"])
                yield line["work"], line, ""
            if self.fault is None:
                break
            if left:
                yield left.pop(0), None, self.fault
        for piece in left:
            yield piece, None, "out of time"

    def card(self) -> None:
        for line in self.child("card", self.left(self.plan.card_s)):
            self.value["card"] |= line
            self.results.save()

    def checks(self) -> None:
        for (precision, compiled, text), line, reason in self.pieces(
            "checks", self.plan.checks, self.left(self.plan.checks_s)
        ):
            lost: dict[str, Any] = {
                "what": named(precision, compiled, text), "loss": [], "largest_difference": None, "reason": reason,
                "tolerance": TOLERANCE[precision], "passed": None if reason == "out of time" else False,
            }  # fmt: skip
            check = line or lost
            verdict = {True: "passed", False: "FAILED", None: "not measured"}[check["passed"]]
            print(f"check {check['what']}: {verdict}", flush=True)
            self.value["checks"].append(check)
            self.results.save()

    def pieces_alone(self) -> None:
        if self.plan.pieces.attention or self.plan.pieces.head:
            for line in self.child("pieces", self.left(self.plan.pieces_s)):
                self.value["pieces"].append(line)
                self.results.save()

    def options(self, **given: Any) -> dict[str, Any]:
        """Return the options of a step of ours: compiled on a GPU."""
        return {"compile": self.given.device == "cuda", **given}

    def rows(self) -> None:
        for row in self.plan.rows:
            name = f"{row.model}, batch {row.batch}, {row.precision}"
            print(f"{name} ...", flush=True)
            self.value["rows"].append({"name": name, **vars(row), **self.tried(self._row, row, row.limit_s)})
            self.results.save()

    def tried(self, measure: Callable[[Any, float], dict[str, Any]], row: Any, wanted_s: float) -> dict[str, Any]:
        """Measure a row in the time that is left, or say why there is no row."""
        limit_s = self.left(wanted_s)
        if limit_s <= 15:
            return {"status": "not measured", "reason": "out of time"}
        try:
            return measure(row, limit_s)
        except Exception as error:
            return {"status": "failed", "reason": first_line(error)}

    def _row(self, row: Row, limit_s: float) -> dict[str, Any]:
        def spec(**given: Any) -> RunSpec:
            return self.plan.spec(row.model, row.batch, row.precision, self.given.device, **given)

        usual = {"options": self.options()}
        rivals: dict[str, dict[str, Any]] = {
            "trainer": {"framework": "hf-trainer"}, "plain": {"framework": "hf-loop"},
            "plain compiled": {"framework": "hf-loop", "options": self.options()}, "ours again": usual,
            "recorded": {"options": self.options(cuda_graph="step")},
            "eager": {"options": self.options(compile=False)}, "auto": {"options": self.options(compile="auto")},
            "lamb": {"options": self.options(), "optimizer": {"name": "lamb", "learning_rate": 1e-4}},
        }  # fmt: skip
        ours = spec(**usual)
        asked: Asked = {"ours": (ours, {}), **{name: (spec(**rivals[name]), {}) for name in row.rivals}}
        measured = self._contest(asked, limit_s, profile=self.given.device == "cuda")
        if measured["status"] == "ok":
            speeds = {label: row.batch / seconds for label, seconds in measured["seconds"].items()}
            measured |= {"samples_per_s": speeds, **reached(self.value["card"], ours, speeds["ours"])}
            expected = gpu_expected.of(self.value["card"].get("name"), row.model, row.batch, row.precision)
            measured |= gpu_expected.judged(expected, speeds["ours"], measured["kernels"])
        return measured

    def _contest(self, asked: Asked, limit_s: float, profile: bool = False) -> dict[str, Any]:
        """Measure all contestants that get ready. If `ours` is refused, there is no row."""
        end, precision = time.monotonic() + limit_s, asked["ours"][0].precision
        found = contest(asked, TOLERANCE[precision], self.plan.rounds, self.plan.seconds, end, profile)
        if reason := found.refused.get("ours"):
            full = memory.is_refusal(reason) or "MemoryError" in reason
            return {"status": "out of memory" if full else "failed", "reason": reason, "refused": found.refused}
        labels = list(found.rounds[0])
        return {
            "status": "ok", "reason": None, "loss": found.losses, "refused": found.refused, "kernels": found.kernels,
            "rounds": found.rounds, "peak_memory_bytes": found.peak_memory_bytes,
            "seconds": {label: harness.middle(found.rounds, label) for label in labels},
            "ratios": {
                label: asdict(harness.ratio(found.rounds, label, "ours")) for label in labels if label != "ours"
            },
        }  # fmt: skip

    def real(self) -> None:
        for real in self.plan.real:
            name = f"{self.plan.model}, batch {real.batch}, bf16, {real.sequence_length} tokens"
            print(f"real text: {name} ...", flush=True)
            row = {"name": name, "batch": real.batch, "sequence_length": real.sequence_length}
            self.value["real"].append(row | self.tried(self._real, real, real.limit_s))
            self.results.save()

    def _real(self, real: Real, limit_s: float) -> dict[str, Any]:
        start, manifest, predictions = time.monotonic(), self.given.shards, real.predictions
        content = json.loads(manifest.read_text()) if manifest else {}
        if manifest and content["sequence_length"] == real.sequence_length:
            predictions = content["predictions"]
        else:
            manifest = make_shards(self.folder, real)

        def contestant(resident: bool = False, **options: Any) -> tuple[RunSpec, dict[str, Any]]:
            spec = self.plan.spec(
                self.plan.model, real.batch, "bf16", self.given.device, sequence_length=real.sequence_length,
                predictions=predictions, options=self.options(**{"data": "real", **options}),
            )  # fmt: skip
            return spec, {"manifest": manifest, "resident": resident}

        every = {
            "ours": contestant(), "resident": contestant(resident=True), "full length": contestant(data="synthetic"),
            "without padding": contestant(remove_padding=True),
            "without padding, not compiled": contestant(remove_padding=True, compile=False),
        }  # fmt: skip
        asked = {label: every[label] for label in ("ours", *real.rivals)}
        measured = self._contest(asked, limit_s - (time.monotonic() - start))
        share = real_token_share(manifest)
        if measured["status"] == "ok":
            speeds = {label: real.batch / seconds for label, seconds in measured["seconds"].items()}
            real_tokens = real.sequence_length * share
            tokens = {label: speed * real_tokens for label, speed in speeds.items() if label != "full length"}
            measured |= {"samples_per_s": speeds, "real_tokens_per_s": tokens}
        return {"real_token_share": share, "given": manifest == self.given.shards, **measured}

    def matrix(self) -> None:
        work = [(*combination, batch) for *combination, batches in self.plan.matrix for batch in batches]
        limit = self.left(1e9)
        for (*combination, batch), line, reason in self.pieces("matrix", work, limit if limit > 20 else 0):
            status = "not measured" if reason == "out of time" else "failed"
            self.value["matrix"].append(line or cell(combination, batch, status, reason=reason))
            self.results.save()


class Alarm:
    """Call `action` after some seconds, unless cancelled. `rang` says whether it was called."""

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self.rang = False

        def ring() -> None:
            self.rang = True
            action()

        self.timer = threading.Timer(max(1.0, seconds), ring)
        self.timer.daemon = True
        self.timer.start()
        self.cancel = self.timer.cancel


if __name__ == "__main__":
    sys.exit(main())
