"""How much work a run did: FLOPs, shares of the device's peaks, real tokens. A record's `work`.

Model FLOPs utilization after Chowdhery et al. 2022 (PaLM), appendix B: the FLOPs that the model needs, not those that
the hardware did (recomputed activations do not count), over the dense peak at the run's precision.
"""

from collections.abc import Mapping
from typing import Any

from throughline import gpus, workloads
from throughline.messages import RankReport


def of(
    spec: Mapping[str, Any],
    samples_per_s: float | None,
    world: int,
    device: Mapping[str, Any] | None,
    raw: Mapping[str, Any],
) -> dict[str, Any]:
    """The `work` of a record, per device where it is a rate of FLOPs, over all devices where it is one of tokens.

    raw: what was measured in the run, each of it optional: `matmul_flops_per_s` of one device at the run's precision,
    `facts` of the data and what was `counted` of them (both the workload's), `reasons` why one is missing.
    """
    workload, precision = workloads.of(spec["model"]), spec["precision"]
    facts, counted = raw.get("facts") or workload.facts(None), raw.get("counted") or {}
    reasons: dict[str, str] = dict(raw.get("reasons") or {})
    gpu = gpus.find(device["name"]) if device and device["kind"] != "cpu" else None
    peak = gpu.peak_flops_per_s[precision] if gpu else None
    if peak is None:
        reasons["datasheet_flops_per_s"] = _why_no_peak(precision, device, gpu)
    matmul = raw.get("matmul_flops_per_s")
    if matmul is None:
        reasons.setdefault("matmul_flops_per_s", "no matrix product was measured in this run")
    tokens = workload.UNITS.get("tokens")
    share = 1.0 if tokens and spec["options"]["data"] == "synthetic" else counted.get("real_token_share")
    if share is None:
        why = "the run did not count its padding" if tokens else f"{spec['model']} has no tokens"
        reasons.setdefault("real_token_share", why)
    each = workload.flops_per_sample(spec, facts, counted)
    per_sample = None if isinstance(each, str) else float(each)
    if isinstance(each, str):
        reasons["flops_per_sample"] = each
    rate = per_sample * samples_per_s / world if per_sample and samples_per_s else None
    real_tokens = share * tokens(workloads.parameters(spec)) if tokens and share else None
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
    causal = getattr(workload, "causal_flops_per_sample", lambda spec: "")(spec)
    if rate and peak and not isinstance(causal, str):
        figures["mfu_causal"] = rate / peak * causal / per_sample
    _explain(figures, reasons, samples_per_s)
    return {
        **figures,
        "convention": workload.convention(spec) | _convention(precision, gpu.source if gpu else None),
        "reasons": {name: why for name, why in reasons.items() if figures.get(name) is None},
    }


def _explain(figures: Mapping[str, float | None], reasons: dict[str, str], samples_per_s: float | None) -> None:
    """Give the figures that follow from one that is not known the reason of that one."""
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
    """What `of` takes of the ranks' reports: the slowest device's matrix product, the mean of what they counted."""
    ranks = [report.measured for _, report in sorted(reports.items()) if report.measured]
    if not ranks or len(ranks) < len(reports):
        return {}
    rates = [rank.matmul_flops_per_s for rank in ranks if rank.matmul_flops_per_s is not None]
    counted = [rank.counted for rank in ranks]
    return {
        "matmul_flops_per_s": min(rates) if len(rates) == len(ranks) else None,
        "facts": ranks[0].facts,
        "counted": {name: sum(one[name] for one in counted) / len(counted) for name in counted[0]},
        "reasons": ranks[0].work_reasons,
    }


def _why_no_peak(precision: str, device: Mapping[str, Any] | None, gpu: gpus.Gpu | None) -> str:
    if device is None:
        return "the run met no device"
    if device["kind"] == "cpu":
        return "a CPU's peak depends on its clock and cores: no datasheet states it"
    if gpu is None:
        return f"resources/gpus.csv does not know {device['name']}: no peak is guessed"
    return f"resources/gpus.csv states no {precision} peak for {gpu.name}"


def _convention(precision: str, source: str | None) -> dict[str, str]:
    """The choices behind the figures that are the same for every workload."""
    return {
        "recomputation": "not counted: the model's FLOPs, not the hardware's",
        "peak": f"dense, without sparsity, at {precision}, per device" + (f"; source: {source}" if source else ""),
        "matmul": f"a large matrix product at {precision} on every device of this run at once, "
        "for a second after the window; the slowest device counts",
        "samples": "of all devices; FLOP/s and shares are per device",
        "real_tokens": "positions of the input that are no padding",
    }
