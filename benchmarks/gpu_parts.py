"""The parts of gpu.py that use the device, and what its rows are compared with.

Each part in PARTS runs in its own process and yields the lines of its results.
"""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contestants import BATCHES, specification
from gpu_pieces import pieces
from gpu_plans import Plan, Real

from throughline import gpus, memory, workloads
from throughline.observe import work
from throughline.rank.report import double_of_cuda
from throughline.spec import RunSpec
from throughline.workloads import bert, gpt2

TOLERANCE = {"fp32": 1e-3, "tf32": 2e-3, "bf16": 1e-2, "fp16": 1e-2}
"""Largest relative difference that is allowed between a loss and that of fp32 in eager mode, over a check's steps."""
GENTLE = 2e-5
"""The learning rate of a check. With 1e-4 and no warm-up the losses rise, and rounding grows from step to step."""


def cell(combination: list[Any], batch: int, status: str, **more: Any) -> dict[str, Any]:
    switches = dict(zip(("precision", "compile", "activation_checkpointing"), combination, strict=True))
    empty = {"samples_per_s": None, "peak_memory_bytes": None, "reason": None}
    return {"work": [*combination, batch], **switches, "batch": batch, "status": status, **empty, **more}


def card(plan: Plan, device: str, _: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the card's name and versions, and what the library's micro-benchmarks reach on it."""
    import torch

    gpu = device == "cuda"
    yield {
        "name": torch.cuda.get_device_name(0) if gpu else None,
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory if gpu else None,
        "capability": list(torch.cuda.get_device_capability(0)) if gpu else None,
        "torch": torch.__version__,
        "transformers": metadata.version("transformers") if find_spec("transformers") else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if gpu else None,  # type: ignore[no-untyped-call]
        "driver": gpus.driver(),
        "double_of_cuda": double_of_cuda(),
    }
    peaks: dict[str, float | None] = {}
    for precision in ("bf16", "fp16", "tf32", "fp32"):
        peaks[precision], reason = None, {}
        try:
            peaks[precision] = 1e12 * largest("matmul", plan.peak_sizes, device, precision)
        except Exception as error:
            reason = {f"no_{precision}": first_line(error)}
        yield {"matmul_flops_per_s": dict(peaks), **reason}
    yield {"bandwidth_bytes_per_s": 1e9 * largest("within_device", (plan.copy_bytes,), device)}


def largest(figure: str, sizes: Sequence[int], device: str, precision: str = "fp32") -> float:
    """Return the largest figure of a micro-benchmark over these sizes, in its unit."""
    model = "copies" if figure == "within_device" else figure
    rank = built(specification(model, 1, precision=precision, device=device, sizes=sizes, min_seconds=0.2))
    return max(value or 0.0 for name, _, value in rank.form.figures(rank.network) if name == figure)


def built(spec: RunSpec) -> Any:
    """Return our framework `torch` with its network, without an optimizer."""
    from throughline.frameworks.torch.ddp import TorchDDP

    rank = TorchDDP(spec, 0, 0, 1, spec.device)
    rank.join()
    rank.device()
    rank.model(workloads.of(spec.model).facts(None))
    return rank


def synthetic(spec: RunSpec) -> Iterator[Any]:
    return (workloads.of(spec.model).synthetic(spec.batch_size, spec, seed) for seed in range(BATCHES))


def trained(plan: Plan, device: str, precision: str, compiled: bool, text: str) -> tuple[list[float], bool]:
    """Return the losses of the first steps without dropout, and whether whole steps were recorded as a CUDA graph.

    All start from the same weights and use the same batches. `text`: samples of full length (`full`), or samples of
    several lengths whose padding is computed (`padded`) or left out (`packed`).
    """
    import numpy as np

    batch, graph = plan.check_batch, "step" if compiled and text == "full" else "none"
    options = {"dropout": 0.0, "compile": compiled, "cuda_graph": graph, "remove_padding": text == "packed"}
    gentle = {} if plan.model.startswith("resnet") else {"optimizer": {"name": "adamw", "learning_rate": GENTLE}}
    rank = built(plan.spec(plan.model, batch, precision, device, options=options, **gentle))
    rank.optimizer()
    batches = []
    for seed, arrays in enumerate(synthetic(rank.spec)):
        if text != "full":
            draw = np.random.Generator(np.random.Philox(key=seed))
            lengths = draw.integers(plan.sequence_length // 4, plan.sequence_length + 1, (batch, 1))
            arrays["mask"] = (np.arange(plan.sequence_length) < lengths).astype("i1")
            arrays["positions"][arrays["positions"] >= lengths] = 0
        batches.append(rank.deliver(rank.data(bert.without_padding(arrays) if text == "packed" else arrays)))
    losses = [rank.step([batches[step % BATCHES]]) for step in range(plan.check_steps)]
    rank.sync()
    return rank.losses(losses), rank.recorded is not None


def checks(plan: Plan, device: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compare the losses of every way to compute with those of fp32 in eager mode on the same data."""
    from throughline.workloads import Unsupported

    true: dict[bool, list[float]] = {}
    for precision, compiled, text in given["work"]:
        tolerance = TOLERANCE[precision]
        found: dict[str, Any] = {"work": [precision, compiled, text], "what": named(precision, compiled, text)}
        found |= {"loss": [], "largest_difference": None, "tolerance": tolerance}
        try:
            full = text == "full"
            if full not in true:
                true[full], _ = trained(plan, device, "fp32", False, "full" if full else "padded")
            found["loss"], found["recorded"] = trained(plan, device, precision, compiled, text)
            differences = [relative(loss, right) for loss, right in zip(found["loss"], true[full], strict=True)]
            found["largest_difference"] = max(differences)
            passed, reason = all(each <= tolerance for each in differences), None
        except Unsupported as error:
            passed, reason = True, f"unsupported: {error}"
        except Exception as error:
            if is_fatal(error):
                raise
            passed, reason = False, first_line(error)
        yield {**found, "passed": passed, "reason": reason}
        gc.collect()


def relative(value: float, right: float) -> float:
    """Return the relative difference; 0 if both are 0, as on a device that computes nothing."""
    return abs(value - right) / max(abs(right), 1e-30)


def named(precision: str, compiled: bool, text: str) -> str:
    kinds = {"full": "", "padded": ", padded", "packed": ", without padding"}
    return precision + kinds[text] + (", compiled" if compiled else "")


def is_fatal(error: BaseException) -> bool:
    """True if the device does not answer in this process any more."""
    return "CUDA error" in str(error) and not memory.is_refusal(str(error))


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def matrix(plan: Plan, device: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Measure one network for each combination, with its batch sizes in turn, until memory runs out."""
    import torch

    from throughline.workloads import Unsupported

    end = time.monotonic() + given["seconds"]
    torch._dynamo.config.recompile_limit = 64
    for combination, group in itertools.groupby(given["work"], lambda piece: piece[:3]):
        precision, compiled, activation_checkpointing = combination
        options = {"compile": compiled, "activation_checkpointing": activation_checkpointing}
        spec = plan.spec(plan.model, 1, precision, device, options=options)
        rank: Any = None
        full = False
        for *_, batch in group:
            if time.monotonic() > end:
                return
            if full:
                yield cell(combination, batch, "out of memory", reason="a smaller batch was out of memory")
                continue
            try:
                rank = rank or built(spec)
                yield measured(rank, plan, combination, batch)
            except Unsupported as error:
                yield cell(combination, batch, "unsupported", reason=str(error))
            except Exception as error:
                if is_fatal(error):
                    raise
                full = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or memory.is_refusal(str(error))
                yield cell(combination, batch, "out of memory" if full else "failed", reason=first_line(error))
                rank = None
        rank = None
        gc.collect()
        torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()


def measured(rank: Any, plan: Plan, combination: list[Any], batch: int) -> dict[str, Any]:
    """Measure a cell: two steps of warm-up, then at least three steps, for about half a second."""
    import torch

    gpu = rank.kind == "cuda"
    rank.spec = replace(rank.spec, batch=batch)
    rank.recorded = None
    for parameter in rank.parameters:
        parameter.grad = None
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    rank.optimizer()
    batches = [rank.deliver(rank.data(arrays)) for arrays in synthetic(rank.spec)]

    def steps(count: int) -> float:
        rank.sync()
        start = time.perf_counter()
        for number in range(count):
            rank.step([batches[number % BATCHES]])
        rank.sync()
        return time.perf_counter() - start

    steps(2)
    count = min(100, max(3, round(plan.seconds / steps(1))))
    speed = batch * count / steps(count)
    peak = rank.memory()["reserved_bytes"]
    return cell(combination, batch, "ok", samples_per_s=speed, peak_memory_bytes=peak, steps=count)


def traffic(spec: RunSpec) -> float | None:
    """Estimate the bytes that a step reads and writes at least. None for ResNet.

    The estimate counts 16 activations of H per token and layer, written and read once in the forward and twice in the
    backward pass. It adds what the optimizer touches: it reads weight, gradient, mean and square, writes three of them,
    and writes a copy in a 16-bit type.
    """
    if spec.optimizer.name == "sgd":
        return None
    module: Any = gpt2 if spec.model in gpt2.SHAPES else bert
    shape, width = module.SHAPES[spec.model], 2 if spec.precision in ("bf16", "fp16") else 4
    activations: float = (
        spec.batch_size * spec.parameters.sequence_length * shape.hidden * 16 * width * 2 * 3 * shape.layers
    )
    weights: float = shape.layers * 12 * shape.hidden**2 + module.padded(module.VOCABULARY) * shape.hidden
    return activations + (28 + width) * weights


def reached(card: dict[str, Any], spec: RunSpec, samples_per_s: float) -> dict[str, float | None]:
    """Return the shares that our step reaches: of the datasheet's peak (MFU), of the fastest matrix product and of the
    bandwidth that were measured on this card."""
    matmul, bandwidth = (card.get("matmul_flops_per_s") or {}).get(spec.precision), card.get("bandwidth_bytes_per_s")
    device = {"kind": spec.device, "name": card.get("name") or ""}
    figures = work.of(spec, samples_per_s, 1, device, {"matmul_flops_per_s": matmul})
    step_bytes = traffic(spec)
    return {
        "model_flops_per_s": figures["flops_per_s"],
        "tokens_per_s": figures["real_tokens_per_s"],
        "mfu": figures["mfu"],
        "matmul_share": figures["matmul_share"],
        "bandwidth_share": step_bytes * samples_per_s / spec.batch_size / bandwidth
        if bandwidth and step_bytes
        else None,
    }


def make_shards(folder: Path, real: Real) -> Path:
    """Make shards in NVIDIA's layout in a new folder, and a manifest beside them; return the manifest's path."""
    import h5py
    import numpy as np

    (count, rows), length, predictions = real.shards, real.sequence_length, real.predictions
    vocabulary = bert.VOCABULARY
    folder = folder / f"seq{length}"
    folder.mkdir()
    draw = np.random.Generator(np.random.Philox(key=7))
    entries = []
    for number in range(count):
        lengths = np.where(draw.random(rows) < real.full, length, draw.integers(length // 4, length + 1, rows))
        tokens = np.arange(length) < lengths[:, None]
        chosen = np.sort(draw.random((rows, length // 4 - 1)).argsort(axis=1)[:, :predictions] + 1, axis=1)
        arrays = {
            "input_ids": (draw.integers(1000, vocabulary, (rows, length)) * tokens).astype("i4"),
            "input_mask": tokens.astype("i1"),
            "segment_ids": ((np.arange(length) >= lengths[:, None] // 2) & tokens).astype("i1"),
            "masked_lm_positions": chosen.astype("i4"),
            "masked_lm_ids": draw.integers(1000, vocabulary, chosen.shape).astype("i4"),
            "next_sentence_labels": draw.integers(0, 2, rows).astype("i1"),
        }
        path = folder / f"training_{number:04d}.hdf5"
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, compression="gzip", compression_opts=1, shuffle=True)
        entries.append({"file": path.name, "split": "training", "rows": rows})
    sizes = {"sequence_length": length, "predictions": predictions, "vocabulary": {"size": vocabulary}}
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({**sizes, "shards": entries}))
    return manifest


PARTS: dict[str, Callable[[Plan, str, dict[str, Any]], Iterator[dict[str, Any]]]] = {
    "card": card,
    "checks": checks,
    "matrix": matrix,
    "pieces": lambda plan, device, _: pieces(plan.pieces, device),
}
