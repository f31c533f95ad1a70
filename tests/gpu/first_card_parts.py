"""The parts of first_card.py that use the card: `python first_card_parts.py PART ORDER`, each a process.

A part prints lines of JSON: first its plan, the names of its rows, then each row when it is there. A row has a name, a
status, the reason if it is not `ok`, and figures.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from contestants import BATCHES, contest, specification  # noqa: E402
from harness import middle, ratio  # noqa: E402

from throughline import workloads  # noqa: E402
from throughline.observe import work  # noqa: E402
from throughline.processes import die_with_parent  # noqa: E402
from throughline.rank.report import double_of_cuda  # noqa: E402

Row = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A model of the parts `losses` and `rows`. tiny: what stands for it in a trial. share: of the time of `rows`."""

    name: str
    batch: int
    check_batch: int
    sizes: dict[str, int]
    tiny: str
    share: float
    check_steps: int = 8


MODELS = (
    Model("bert-base", 256, 32, {"sequence_length": 128, "predictions": 20}, "bert-tiny", 0.3),
    Model("gpt2-small", 32, 4, {"sequence_length": 1024}, "gpt2-tiny", 0.3),
    Model("resnet50", 256, 32, {"image": 224}, "resnet-tiny", 0.4, check_steps=2),
)
TINY_SIZES = {"sequence_length": 32, "predictions": 5, "image": 64}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp32": ("fp32", {}),
    "bf16": ("bf16", {}),
    "bf16, recorded": ("bf16", {"cuda_graph": "step"}),
    "bf16, compiled": ("bf16", {"compile": True}),
    "bf16, compiled and recorded": ("bf16", {"compile": True, "cuda_graph": "step"}),
}
"""The ways to compute a step, the cheapest first. The losses of the first are those that the others have to give."""
TOLERANCE = {"fp32": 1e-3, "bf16": 1e-2}
"""The largest relative difference of a loss from that of fp32."""
GENTLE = {"name": "adamw", "learning_rate": 2e-5}
"""The optimizer of `losses`. With 1e-4 and no warm-up, losses rise, and rounding grows from step to step."""
ROOMY = 120e9
"""On a card with so many bytes, the three contestants of a row compile at the same time."""


@dataclass(frozen=True)
class Order:
    """What first_card.py asks for."""

    device: str
    tiny: bool
    limit_s: float
    output: str

    def spec(self, model: Model, batch: int, **given: Any) -> Any:
        """Return the specification of a run of a model."""
        name, sizes = (model.tiny, TINY_SIZES) if self.tiny else (model.name, model.sizes)
        batch = 2 if self.tiny else batch
        return specification(name, batch, device=self.device, label_smoothing=0.0, **sizes, **given)


def losses(order: Order) -> Iterator[Row]:
    """Yield for each way and model the largest relative difference of the first steps' losses from fp32's."""
    ways = {way: asked for way, asked in WAYS.items() if order.device == "cuda" or not asked[1]}
    yield {"plan": [f"{model.name}, {way}" for way in ways for model in MODELS]}
    right: dict[str, list[float]] = {}
    for way, (precision, options) in ways.items():
        for model in MODELS:
            row: Row = {"name": f"{model.name}, {way}", "status": "ok", "tolerance": TOLERANCE[precision]}
            try:
                row["losses"] = trained(order, model, precision, options)
                true = right.setdefault(model.name, row["losses"])
                pairs = zip(row["losses"], true, strict=True)
                row["largest_difference"] = max(abs(loss - one) / max(abs(one), 1e-30) for loss, one in pairs)
                if not row["largest_difference"] <= row["tolerance"] and computes():
                    row |= {"status": "failed", "reason": "losses differ"}
            except Exception as error:
                row |= {"status": "failed", "reason": first_line(error)}
            yield row


def computes() -> bool:
    """False on the fake driver (tests/gpu/README.md), whose values are nonsense and are not compared."""
    return double_of_cuda() is None


def trained(order: Order, model: Model, precision: str, options: dict[str, Any]) -> list[float]:
    """Return the losses of the first steps without dropout: always from the same weights, on the same batches."""
    from throughline.frameworks.torch.ddp import TorchDDP

    gentle = {} if model.name.startswith("resnet") else {"optimizer": GENTLE}
    spec = order.spec(model, model.check_batch, precision=precision, options={"dropout": 0.0, **options}, **gentle)
    rank: Any = TorchDDP(spec, 0, 0, 1, spec.device)
    rank.join()
    rank.device()
    workload = workloads.of(spec.model)
    rank.model(workload.facts(None))
    rank.optimizer()
    batches = [rank.deliver(rank.data(workload.synthetic(spec.batch_size, spec, seed))) for seed in range(BATCHES)]
    found = [rank.step([batches[step % BATCHES]]) for step in range(2 if order.tiny else model.check_steps)]
    rank.sync()
    return list(rank.losses(found))


def rows(order: Order) -> Iterator[Row]:
    """Yield for each model how fast our step is, and how many times as long the others take for theirs."""
    begin, share = time.monotonic(), 0.0
    yield {"plan": [model.name for model in MODELS]}
    card = card_of(order.device)
    for model in MODELS:
        share += model.share
        try:
            figures = row_of(order, model, begin + share * order.limit_s, card)
        except Exception as error:
            figures = {"status": "failed", "reason": first_line(error)}
        yield {"name": model.name, "batch": model.batch, **figures}


def row_of(order: Order, model: Model, end: float, card: dict[str, Any]) -> Row:
    """Measure a row until `end` (time.monotonic)."""
    options = {"compile": order.device == "cuda"}
    ours = order.spec(model, model.batch, precision="bf16", options=options)
    plain = order.spec(model, model.batch, precision="bf16", options=options, framework="hf-loop")
    asked: Any = {"ours": (ours, {}), "Hugging Face": (plain, {}), "torch's modules": (ours, {"modules": True})}
    rounds, seconds = (2, 0.05) if order.tiny else (4, 1.5)
    together = (card["memory_bytes"] or 0) > ROOMY
    tolerance = TOLERANCE["bf16"] if computes() else float("inf")
    found = contest(asked, tolerance, rounds, seconds, end, order.device == "cuda", together)
    refused = "; ".join(f"{label}: {reason}" for label, reason in found.refused.items())
    if not found.rounds:
        return {"status": "failed", "reason": refused or "no time"}
    speeds = {label: ours.batch / middle(found.rounds, label) for label in found.rounds[0]}
    device = {"kind": order.device, "name": card["name"] or ""}
    return {
        "status": "ok", "reason": refused, "samples_per_s": speeds, "losses": found.losses, "rounds": found.rounds,
        "mfu": work.of(ours, speeds["ours"], 1, device, {})["mfu"],
        "times_as_long": {label: str(ratio(found.rounds, label, "ours")) for label in speeds if label != "ours"},
        "memory_gb": {label: peak and peak / 1e9 for label, peak in found.peak_memory_bytes.items()},
        "kernels": found.kernels and {kind: taken / found.kernels["wall"] for kind, taken in found.kernels.items()},
    }  # fmt: skip


def card_of(device: str) -> dict[str, Any]:
    """Return the name and the memory of the first card."""
    import torch

    if device != "cuda":
        return {"name": None, "memory_bytes": None}
    found = torch.cuda.get_device_properties(0)
    return {"name": found.name, "memory_bytes": found.total_memory}


def workflow(order: Order) -> Iterator[Row]:
    """Yield for each block for GPUs of config.yaml what its runs gave, shortened, from the whole workflow.

    The blocks are added one after the other, and each time the report and the archive are made. So both are there when
    the time of a later block is over.
    """
    from ruamel.yaml import YAML

    yaml, folder = YAML(typ="safe"), Path(os.environ["FIRST_CARD_WORK"], "workflow")
    config = shortened(yaml.load((ROOT / "config.yaml").read_text()), order)
    blocks = list(config["benchmarks"])
    yield {"plan": blocks}
    folder.mkdir()
    for count, block in enumerate(blocks, 1):
        asked = config | {"benchmarks": {name: config["benchmarks"][name] for name in blocks[:count]}}
        with (folder / "config.yaml").open("w") as file:
            yaml.dump(asked, file)
        words = ["--snakefile", str(ROOT / "Snakefile"), "--cores", "all", "--scheduler", "greedy"]
        command = [sys.executable, "-m", "snakemake", *words, "all", "pack", "--configfile", "config.yaml"]
        status = subprocess.run(command, cwd=folder, stdout=sys.stderr, check=False).returncode
        for made in ("report.html", "archive.zip"):
            if (folder / "results" / made).exists():
                Path(order.output, made).write_bytes((folder / "results" / made).read_bytes())
        yield {"name": block, **measured(folder / "results" / block, status)}


def shortened(config: Row, order: Order) -> Row:
    """Return the blocks for GPUs of a configuration, with torch only, 2 repeats, windows of 8 s, synthetic data.

    Data from text would need packages of 100 MB. In a trial the models are tiny, and the device is that of the trial.
    """
    blocks = {name: block for name, block in config["benchmarks"].items() if block.get("only_on") == "cuda"}
    for name, block in blocks.items():
        block |= {"frameworks": ["torch"], "options": {**block.get("options", {}), "data": "synthetic"}}
        block["steps"] = {"warmup": 5, "max_total_seconds": None, "min_window_seconds": 8}
        if order.tiny:
            tiny = next(model.tiny for model in MODELS if model.name == block["model"])
            sizes = {key: TINY_SIZES[key] for key in ("sequence_length", "image") if key in block}
            block |= {"model": tiny, "batch": {"bf16": [2]}, "steps": {"warmup": 2, "timed": 4}, **sizes}
            block |= {"options": block["options"] | {"compile": False}, "topologies": ["1n1g"]}
        blocks[name] = block | {"only_on": order.device}
    return {
        "corpus": {"name": "first_card", "sequences": {128: 20, 32: 5}},
        "runs": {"device": order.device, "repeats": 1 if order.tiny else 2, "threads": 1},
        "benchmarks": blocks,
    }


def measured(folder: Path, status: int) -> Row:
    """Return what the runs in a benchmark's folder gave: their speeds by topology, and how many ended how."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("bz*/*/*/run*.json"))]
    speeds: dict[str, list[float]] = {}
    ended: dict[str, int] = {}
    for record in records:
        ended[record["status"]] = ended.get(record["status"], 0) + 1
        if record["samples_per_s"]:
            speeds.setdefault(record["spec"]["topology"], []).append(record["samples_per_s"])
    reasons = {record["reason"] for record in records if record["reason"]}
    reason = "; ".join(sorted(reasons)) or (f"snakemake ended with status {status}: workflow.log" if status else "")
    return {"status": "failed" if status else "ok", "samples_per_s": speeds, "runs": ended, "reason": reason}


def bench(order: Order) -> Iterator[Row]:
    """Yield what `throughline bench` says of the example program in fp32 and with TF32's products."""
    yield {"plan": ["throughline bench"]}
    program = shlex.join([sys.executable, str(ROOT / "examples/own_program/train.py"), "--batch", "16"])
    folder = Path(os.environ["FIRST_CARD_WORK"], "bench")
    folder.mkdir()
    words = ["--per-step", "16", "--unit", "samples", "--name", "first_card", "--repeats", "1" if order.tiny else "3"]
    words += ["--steps", "1000", "--max-seconds", "2", "--"]
    code = "import sys; from throughline.commands import main; main(sys.argv[1:])"
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ["PYTHONPATH"]])}
    command = [sys.executable, "-c", code, "bench", *words, program]
    command += [f"env TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 {program}"]
    done = subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, check=False
    )
    print(done.stdout, file=sys.stderr)
    said = [line for line in done.stdout.splitlines() if line.startswith("train") and ".py " not in line]
    yield {"name": "throughline bench", "status": "failed" if done.returncode else "ok", "said": said,
           "reason": f"status {done.returncode}: bench.log" if done.returncode else ""}  # fmt: skip


def tests(order: Order) -> Iterator[Row]:
    """Yield the outcome of each test of on_card.py."""
    from xml.etree import ElementTree

    found = Path(os.environ["FIRST_CARD_WORK"], "tests.xml")
    words = ["-q", "--noconftest", "-c", os.devnull, "-p", "no:cacheprovider", f"--junitxml={found}"]
    command = [sys.executable, "-m", "pytest", *words, str(HERE / "on_card.py")]
    paths = [str(ROOT / "src"), str(ROOT / "benchmarks"), os.environ["PYTHONPATH"]]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    yield {"plan": ["on_card.py"] if order.device == "cuda" else []}
    if order.device != "cuda":
        return
    subprocess.run(command, env=variables, stdout=sys.stderr, check=False)
    for case in ElementTree.parse(found).iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        status = "ok" if bad is None else bad.tag
        yield {"name": case.get("name"), "status": status,
               "reason": "" if bad is None else str(bad.get("message")).splitlines()[0][:200]}  # fmt: skip
    yield {"name": "on_card.py", "status": "ok"}


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


PARTS = {"losses": losses, "rows": rows, "workflow": workflow, "bench": bench, "tests": tests}

if __name__ == "__main__":
    die_with_parent(os.getppid(), signal.SIGTERM)
    answers = os.fdopen(os.dup(1), "w", buffering=1)  # what libraries print is no row
    os.dup2(2, 1)
    for row in PARTS[sys.argv[1]](Order(**json.loads(sys.argv[2]))):
        answers.write(json.dumps(row) + "\n")
    sys.stderr.flush()
    os._exit(0)  # threads of CUDA's libraries that still run would end this process with an error
