"""How much work a run did: FLOPs, shares of the device's peaks, real tokens. A record's `work`.

Model FLOPs utilization after Chowdhery et al. 2022 (PaLM), appendix B: the FLOPs that the model needs, not those that
the hardware did (recomputed activations do not count), over the dense peak at the run's precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from throughline import gpus, workloads
from throughline.files import UserError

BEFORE_WINDOW = "the run has no throughput"


def of(
    spec: Mapping[str, Any],
    samples_per_s: float | None,
    world: int,
    device: Mapping[str, Any] | None,
    raw: Mapping[str, Any],
) -> dict[str, Any]:
    """The `work` of a record, per device where it is a rate of FLOPs, over all devices where it is one of tokens.

    raw: what was measured in the run, each of it optional: `matmul_flops_per_s` of one device at the run's precision,
    `real_token_share` of the window's tokens, `real_pair_share` of its pairs of tokens within a sample,
    `vocabulary_rows` of the model, `reasons` why one is missing.
    """
    reasons: dict[str, str] = dict(raw.get("reasons") or {})
    peak, source = _datasheet(spec["precision"], device, reasons)
    matmul = raw.get("matmul_flops_per_s")
    share = 1.0 if spec["options"]["data"] == "synthetic" else raw.get("real_token_share")
    if matmul is None:
        reasons.setdefault("matmul_flops_per_s", "no matrix product was measured in this run")
    if share is None:
        reasons.setdefault("real_token_share", "the run did not count its padding")
    per_sample = _flops_per_sample(spec, raw, reasons)
    rate = per_sample * samples_per_s / world if per_sample and samples_per_s else None
    figures = {
        "flops_per_sample": per_sample,
        "flops_per_s": rate,
        "datasheet_flops_per_s": peak,
        "mfu": rate / peak if rate and peak else None,
        "matmul_flops_per_s": matmul,
        "matmul_share": rate / matmul if rate and matmul else None,
        "real_token_share": share,
        "real_tokens_per_s": share * spec["sequence"] * samples_per_s if share and samples_per_s else None,
    }
    if samples_per_s is None:
        reasons |= dict.fromkeys(("flops_per_s", "real_tokens_per_s"), BEFORE_WINDOW)
    for name, needed in (
        ("flops_per_s", "flops_per_sample"), ("mfu", "datasheet_flops_per_s"), ("mfu", "flops_per_s"),
        ("matmul_share", "matmul_flops_per_s"), ("matmul_share", "flops_per_s"),
        ("real_tokens_per_s", "real_token_share"),
    ):  # fmt: skip
        if figures[name] is None and needed in reasons:
            reasons.setdefault(name, reasons[needed])
    return {
        **figures,
        "convention": _convention(spec, source),
        "reasons": {name: why for name, why in reasons.items() if figures.get(name) is None},
    }


def measured(reports: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What `of` takes of the ranks' reports: the slowest device's matrix product, the mean share of real tokens."""

    def of_all(key: str) -> list[float]:
        """What the ranks say; nothing where one does not."""
        found = [report[key] for report in reports.values() if report.get(key) is not None]
        return found if len(found) == len(reports) else []

    first, shares = reports.get(0, {}), {name: of_all(name) for name in ("real_token_share", "real_pair_share")}
    return {
        "matmul_flops_per_s": min(of_all("matmul_flops_per_s"), default=None),
        **{name: sum(found) / len(found) if found else None for name, found in shares.items()},
        "vocabulary_rows": (first.get("settings") or {}).get("vocabulary_rows"),
        "reasons": first.get("work_reasons") or {},
    }


def _unpadded(spec: Mapping[str, Any]) -> bool:
    """Whether padding was left out."""
    return bool(spec["options"].get("unpadded")) and spec["options"]["data"] == "real"


def _flops_per_sample(spec: Mapping[str, Any], raw: Mapping[str, Any], reasons: dict[str, str]) -> float | None:
    try:
        model = workloads.of(spec["model"])
    except UserError as error:
        reasons["flops_per_sample"] = str(error).splitlines()[0]
        return None
    tokens, pairs = spec["sequence"], None
    if _unpadded(spec):
        if raw.get("real_token_share") is None or raw.get("real_pair_share") is None:
            reasons["flops_per_sample"] = "the run did not count its real tokens, and computed no others"
            return None
        tokens, pairs = raw["real_token_share"] * tokens, raw["real_pair_share"] * tokens**2
    vocabulary = raw.get("vocabulary_rows") or model.VOCABULARY
    return float(model.flops_per_sample(model.shape(spec["model"]), tokens, spec["predictions"], vocabulary, pairs))


def _datasheet(
    precision: str, device: Mapping[str, Any] | None, reasons: dict[str, str]
) -> tuple[float | None, str | None]:
    """The dense peak at this precision, and where it is from."""
    if device is None:
        reasons["datasheet_flops_per_s"] = "the run met no device"
        return None, None
    if device["kind"] == "cpu":
        reasons["datasheet_flops_per_s"] = "a CPU's peak depends on its clock and cores: no datasheet states it"
        return None, None
    gpu = gpus.find(device["name"])
    if gpu is None:
        reasons["datasheet_flops_per_s"] = f"resources/gpus.csv does not know {device['name']}: no peak is guessed"
        return None, None
    peak = gpu.peak_flops_per_s[precision]
    if peak is None:
        reasons["datasheet_flops_per_s"] = f"resources/gpus.csv states no {precision} peak for {gpu.name}"
    return peak, gpu.source


def _convention(spec: Mapping[str, Any], source: str | None) -> dict[str, str]:
    """Every choice behind the figures."""
    return {
        **workloads.of(spec["model"]).convention(spec["sequence"], spec["predictions"], _unpadded(spec)),
        "recomputation": "not counted: the model's FLOPs, not the hardware's",
        "peak": f"dense, without sparsity, at {spec['precision']}, per device"
        + (f"; source: {source}" if source else ""),
        "matmul": f"a large matrix product at {spec['precision']} on every device of this run at once, "
        "for a second after the window; the slowest device counts",
        "samples": "of all devices; FLOP/s and shares are per device",
        "real_tokens": "positions of the input that are no padding",
    }
