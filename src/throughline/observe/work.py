"""Compute a record's `work`: the FLOPs of a run, its shares of the device's peaks, and real tokens.

The model FLOPs utilization follows Chowdhery et al. 2022 (PaLM), appendix B. It is the FLOP/s that the model needs,
divided by the dense peak at the run's precision. FLOPs that the hardware does in addition, such as to recompute
activations, do not count.
"""

from collections.abc import Mapping
from typing import Any

from throughline import gpus, workloads
from throughline.messages import RankReport
from throughline.spec import RunSpec


def of(
    spec: RunSpec,
    samples_per_s: float | None,
    world: int,
    device: Mapping[str, Any] | None,
    raw: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the `work` of a record. FLOP/s are of one device; tokens per second are of all devices.

    raw: the measurements of the run, all of them optional: `matmul_flops_per_s` of one device at the run's precision;
    the workload's `facts` about its data, and what it `counted` in them; `reasons` for missing measurements.
    """
    workload, precision = workloads.of(spec.model), spec.precision
    facts, counted = raw.get("facts") or workload.facts(None), raw.get("counted") or {}
    reasons: dict[str, str] = dict(raw.get("reasons") or {})
    gpu = gpus.find(device["name"]) if device and device["kind"] != "cpu" else None
    peak = gpu.peak_flops_per_s.get(precision) if gpu else None
    if peak is None:
        reasons["datasheet_flops_per_s"] = _reason_without_peak(precision, device, gpu)
    matmul = raw.get("matmul_flops_per_s")
    if matmul is None:
        reasons.setdefault("matmul_flops_per_s", "no matrix product was measured in this run")
    tokens = workload.units.get("tokens")
    share = 1.0 if tokens and spec.options.data == "synthetic" else counted.get("real_token_share")
    if share is None:
        unknown = "the run did not count its padding" if tokens else f"{spec.model} has no tokens"
        reasons.setdefault("real_token_share", unknown)
    flops: float | str = "programs.<name>.flops_per_step is not set"
    if spec.program is None:
        flops = workload.flops_per_sample(spec, facts, counted)
    elif spec.program.flops_per_step:
        flops = spec.program.flops_per_step / spec.program.per_step
    if spec.options.data == "reading":
        flops = "nothing is trained"
    per_sample = None if isinstance(flops, str) else float(flops)
    if isinstance(flops, str):
        reasons["flops_per_sample"] = flops
    rate = per_sample * samples_per_s / world if per_sample and samples_per_s else None
    real_tokens = share * tokens(spec.parameters) if tokens and share else None
    figures = {
        "flops_per_sample": per_sample,
        "flops_per_s": rate,
        "datasheet_flops_per_s": peak,
        "mfu": rate / peak if rate and peak else None,
        "matmul_flops_per_s": matmul,
        "matmul_share": rate / matmul if rate and matmul else None,
        "real_token_share": share,
        "real_tokens_per_s": real_tokens * samples_per_s if real_tokens and samples_per_s else None,
    }
    causal = workload.causal_flops_per_sample(spec)
    if rate and peak and per_sample and isinstance(causal, (int, float)):
        figures["mfu_causal"] = rate / peak * causal / per_sample
    _explain(figures, reasons, samples_per_s)
    return {
        **figures,
        "convention": workload.convention(spec) | _convention(precision, gpu.source if gpu else None),
        "reasons": {name: reason for name, reason in reasons.items() if figures.get(name) is None},
    }


def _explain(figures: Mapping[str, float | None], reasons: dict[str, str], samples_per_s: float | None) -> None:
    """Add reasons for the figures that depend on an unknown figure: they get the reason of that figure."""
    if samples_per_s is None:
        reasons |= dict.fromkeys(("flops_per_s", "real_tokens_per_s"), "the run has no throughput")
    for name, needed in (
        ("flops_per_s", "flops_per_sample"), ("mfu", "datasheet_flops_per_s"), ("mfu", "flops_per_s"),
        ("matmul_share", "matmul_flops_per_s"), ("matmul_share", "flops_per_s"),
        ("real_tokens_per_s", "real_token_share"),
    ):  # fmt: skip
        if figures[name] is None and needed in reasons:
            reasons.setdefault(name, reasons[needed])


def measured(reports: Mapping[int, RankReport]) -> dict[str, Any]:
    """Return the argument `raw` of `of`: the slowest device's matrix product, and the means of what the ranks counted.

    It is empty unless every rank has measured.
    """
    ranks = [report.measured for _, report in sorted(reports.items()) if report.measured]
    if not ranks or len(ranks) < len(reports):
        return {}
    rates = [rank.matmul_flops_per_s for rank in ranks if rank.matmul_flops_per_s is not None]
    counted = [rank.counted for rank in ranks]
    return {
        "matmul_flops_per_s": min(rates) if len(rates) == len(ranks) else None,
        "facts": ranks[0].facts,
        "counted": {name: sum(counts[name] for counts in counted) / len(counted) for name in counted[0]},
        "reasons": ranks[0].work_reasons,
    }


def _reason_without_peak(precision: str, device: Mapping[str, Any] | None, gpu: gpus.Gpu | None) -> str:
    if device is None:
        return "the run met no device"
    if device["kind"] == "cpu":
        return "a CPU's peak depends on its clock and cores: no datasheet states it"
    if gpu is None:
        return f"resources/gpus.csv does not know {device['name']}, and we do not guess a peak"
    return f"resources/gpus.csv states no {precision} peak for {gpu.name}"


def _convention(precision: str, source: str | None) -> dict[str, str]:
    """Return those choices behind the figures that are the same for every workload."""
    return {
        "recomputation": "not counted: the model's FLOPs, not the hardware's",
        "peak": f"dense, without sparsity, at {precision}, per device" + (f"; source: {source}" if source else ""),
        "matmul": f"a large matrix product at {precision} on every device of this run at once, "
        "for a second after the window; the slowest device counts",
        "samples": "of all devices; FLOP/s and shares are per device",
        "real_tokens": "positions of the input that are no padding",
    }
