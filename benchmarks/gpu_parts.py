"""The parts of gpu.py that use the device. Each part runs in its own process and yields the lines of its results."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contest import BATCHES, Case, is_out_of_memory, peak

from throughline import workloads
from throughline.workloads import bert

if TYPE_CHECKING:
    from gpu import Plan

TOLERANCE = {"fp32": 1e-3, "tf32": 2e-3, "bf16": 1e-2, "fp16": 1e-2}
"""Largest relative difference that is allowed between a loss and that of fp32 in eager mode, over a check's steps."""


def cell(combination: list[Any], batch: int, status: str, **more: Any) -> dict[str, Any]:
    switches = dict(zip(("precision", "compile", "checkpointing"), combination, strict=True))
    empty = {"samples_per_s": None, "peak_memory_bytes": None, "reason": None}
    return {"work": [*combination, batch], **switches, "batch": batch, "status": status, **empty, **more}


def card(plan: Plan, device: str, _: dict[str, Any]) -> Iterator[dict[str, Any]]:
    import torch

    transformers: Any = None
    with suppress(ImportError):
        import transformers

    gpu = device == "cuda"
    yield {
        "name": torch.cuda.get_device_name(0) if gpu else None,
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory if gpu else None,
        "capability": list(torch.cuda.get_device_capability(0)) if gpu else None,
        "torch": torch.__version__,
        "transformers": transformers and transformers.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if gpu else None,
    }
    peaks: dict[str, float | None] = {}
    for precision in ("bf16", "fp16", "tf32", "fp32"):
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        rates = []
        why = "tf32 exists on GPUs only" if precision == "tf32" and not gpu else None
        for size in plan.peak_sizes if why is None else ():
            try:
                one, two = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
                rates.append(2 * size**3 / fastest(lambda a=one, b=two: a @ b, device))  # type: ignore[misc]
            except Exception as error:
                why = first_line(error)
            one = two = None
        peaks[precision] = max(rates, default=None)
        yield {"matmul_flops_per_s": dict(peaks), **({f"no_{precision}": why} if why else {})}
    source = torch.empty(plan.copy_bytes // 4, device=device)
    target = torch.empty_like(source)
    source.normal_()
    yield {"bandwidth_bytes_per_s": 2 * plan.copy_bytes / fastest(lambda: target.copy_(source), device)}


def fastest(work: Callable[[], Any], device: str, tries: int = 5) -> float:
    """Return the seconds of one call: the fastest mean of several series of three calls."""
    import torch

    def series() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(3):
            work()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / 3

    series()
    return min(series() for _ in range(tries))


def framework(case: Case) -> Any:
    from throughline.frameworks.torch.ddp import TorchDDP

    made = TorchDDP(case.spec(), 0, 0, 1, case.device)
    for stage in (made.join, made.device, lambda: made.model(case.facts), made.optimizer):
        stage()
    return made


def synthetic(plan: Plan, model: str, batch: int) -> Iterator[Any]:
    spec = Case(model, batch, **plan.sizes).spec()
    return (workloads.of(model).synthetic(batch, spec, seed) for seed in range(BATCHES))


def trained(plan: Plan, device: str, precision: str, compiled: bool, text: str) -> tuple[list[float], bool]:
    """Return the losses of the first steps without dropout, and whether the steps were recorded as a CUDA graph.

    All start from the same weights and use the same batches. `text`: samples of full length (`full`), or samples of
    several lengths whose padding is computed (`padded`) or left out (`packed`).
    """
    import numpy as np

    model, batch = plan.check
    recorded = compiled and text == "full"
    options = {"dropout": 0.0, "compile": compiled, "graph": recorded, "unpadded": text == "packed"}
    one = framework(Case(model, batch, precision, device, **plan.sizes, options=options))
    batches = []
    for seed, arrays in enumerate(synthetic(plan, model, batch)):
        if text != "full":
            draw = np.random.Generator(np.random.Philox(key=seed))
            lengths = draw.integers(plan.sequence // 4, plan.sequence + 1, (batch, 1))
            arrays["mask"] = (np.arange(plan.sequence) < lengths).astype("i1")
            arrays["positions"][arrays["positions"] >= lengths] = 0
        batches.append(one.deliver(one.data(bert.unpadded(arrays) if text == "packed" else arrays)))
    losses = [one.step([batches[step % BATCHES]]) for step in range(plan.check_steps)]
    one.sync()
    return one.losses(losses), one.replayed is not None


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
            differences = [abs(loss / right - 1) for loss, right in zip(found["loss"], true[full], strict=True)]
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


def named(precision: str, compiled: bool, text: str) -> str:
    kinds = {"full": "", "padded": ", padded", "packed": ", without padding"}
    return precision + kinds[text] + (", compiled" if compiled else "")


def is_fatal(error: BaseException) -> bool:
    """True if the device does not answer in this process any more."""
    return "CUDA error" in str(error) and not is_out_of_memory(str(error))


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def matrix(plan: Plan, device: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Measure one network for each combination, with its batch sizes in turn, until memory runs out."""
    import torch

    from throughline.workloads import Unsupported

    end = time.monotonic() + given["seconds"]
    torch._dynamo.config.recompile_limit = 64
    for combination, group in itertools.groupby(given["work"], lambda one: one[:3]):
        precision, compiled, checkpointing = combination
        options = {"compile": compiled, "checkpointing": checkpointing}
        case = Case(plan.matrix_model, 1, precision, device, **plan.sizes, options=options)
        one: Any = None
        full = False
        for *_, batch in group:
            if time.monotonic() > end:
                return
            if full:
                yield cell(combination, batch, "out of memory", reason="a smaller batch was out of memory")
                continue
            try:
                one = one or framework(case)
                yield measured(one, plan, combination, batch)
            except Unsupported as error:
                yield cell(combination, batch, "unsupported", reason=str(error))
            except Exception as error:
                if is_fatal(error):
                    raise
                full = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or is_out_of_memory(str(error))
                yield cell(combination, batch, "out of memory" if full else "failed", reason=first_line(error))
                one = None
        one = None
        gc.collect()
        torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()


def measured(one: Any, plan: Plan, combination: list[Any], batch: int) -> dict[str, Any]:
    """Measure a cell: two steps of warm-up, then at least three steps, for about half a second."""
    import torch

    gpu = one.kind == "cuda"
    one.spec = replace(one.spec, batch=batch)
    one.replayed = None
    for parameter in one.parameters:
        parameter.grad = None
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    one.optimizer()
    batches = [one.deliver(one.data(arrays)) for arrays in synthetic(plan, plan.matrix_model, batch)]

    def steps(count: int) -> float:
        one.sync()
        start = time.perf_counter()
        for number in range(count):
            one.step([batches[number % BATCHES]])
        one.sync()
        return time.perf_counter() - start

    steps(2)
    count = min(100, max(3, round(plan.seconds / steps(1))))
    speed = batch * count / steps(count)
    return cell(combination, batch, "ok", samples_per_s=speed, peak_memory_bytes=peak(one.kind), steps=count)


PARTS: dict[str, Callable[[Plan, str, dict[str, Any]], Iterator[dict[str, Any]]]] = {
    "card": card,
    "checks": checks,
    "matrix": matrix,
}
