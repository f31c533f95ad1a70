"""Schema 1, of version 0.1, in the words of schema 2.

Schema 1 knew one model. It called every sample a sample, batches were per device, speedups over one device, and a
proof or a look of a convergence check named its figures one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughline.records.convergence import Look
from throughline.records.entry import SCHEMA

UNIT = "samples/s"
BASELINE = "1n1g"
Value = dict[str, Any]


def translated(kind: str, value: Any) -> Any:
    """The value of a file of this kind (the name of its class); one of schema 2 as it is."""
    if not isinstance(value, dict) or value.get("schema") != 1:
        return value
    try:
        value = dict(value)
        changed = TRANSLATIONS[kind](value) if kind in TRANSLATIONS else {}
        return {**value, **changed, "schema": SCHEMA}
    except (KeyError, TypeError, AttributeError):  # no such file: the validation says what is wrong with it
        return {**value, "schema": SCHEMA}


def _run(value: Value) -> Value:
    return {"unit": UNIT, "figures": []}


def _summary(value: Value) -> Value:
    frameworks = {
        name: {topology: {**cell, "replicas": cell["world_size"]} for topology, cell in series.items()}
        for name, series in value["frameworks"].items()
    }
    baselines = dict.fromkeys(frameworks, BASELINE)
    return {"batch": value["batch_size_per_device"], "baselines": baselines, "frameworks": frameworks}


def _curve(value: Value) -> Value:
    return {"curve": [Look.flat(look) for look in value["curve"]]}


def _verdict(value: Value) -> Value:
    return {"last": Look.flat(value["last"]) if value["last"] else None}


def _equivalence(value: Value) -> Value:
    return {"batch_per_device": value.pop("batch_size_per_device")}


TRANSLATIONS: dict[str, Callable[[Value], Value]] = {
    "RunRecord": _run,
    "Summary": _summary,
    "Curve": _curve,
    "ConvergenceVerdict": _verdict,
    "Equivalence": _equivalence,
}
