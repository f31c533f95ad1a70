"""The frequencies of rotary positions (Su et al. 2021) in a config.json, with the scalings of published models.

`linear` divides all frequencies (Chen et al. 2023). `dynamic` raises their base for samples that are longer than the
model's positions. `llama3` divides the low ones only (Llama 3.1). `yarn` divides the low ones, and scales sines and
cosines (Peng et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from throughline.workloads.hugging_face.configuration import NotOurs

Content = Mapping[str, Any]
THETA = 10000.0
"""The base of the frequencies, where config.json states none."""
PLAIN = {"rope_type": "default"}


@dataclass(frozen=True)
class Frequencies:
    """The angle of pair i at position p is p x values[i]. Sines and cosines are multiplied by `scale`."""

    values: tuple[float, ...]
    scale: float = 1.0


def tables(given: Content, sequence_length: int, width: int) -> tuple[Frequencies, ...]:
    """Return the frequencies of a model for heads of this width. Gemma 3 has others in layers with a sliding window,
    which come second."""
    stated = given.get("rope_scaling") or given.get("rope_parameters") or given.get("rotary_default") or PLAIN
    theta = given.get("rope_theta", THETA)
    if given["model_type"] != "gemma3_text":
        return (_frequencies({"rope_theta": theta, **stated}, given, sequence_length, width),)
    by_type: Content = given.get("rope_parameters") or {}
    full = {**PLAIN, **(by_type.get("full_attention") or {}), **(given.get("rope_scaling") or {})}
    local = {**PLAIN, **(by_type.get("sliding_attention") or {})}
    bases = {"full": given.get("rope_theta", 1e6), "local": given.get("rope_local_base_freq", 10000.0)}
    return (
        _frequencies({"rope_theta": bases["full"], **full}, given, sequence_length, width),
        _frequencies({"rope_theta": bases["local"], **local}, given, sequence_length, width),
    )


def _frequencies(stated: Content, given: Content, sequence_length: int, width: int) -> Frequencies:
    kind = stated.get("rope_type") or stated.get("type") or "default"
    share = stated.get("partial_rotary_factor") or given.get("partial_rotary_factor") or 1.0
    if share != 1.0 and given["model_type"] != "phi3":
        raise NotOurs("rotary positions for a part of each head")
    if kind not in ("default", "linear", "dynamic", "llama3", "yarn"):
        raise NotOurs(f"rotary positions of the type {kind!r}")
    width, base = int(width * share), float(stated["rope_theta"])
    positions = given["max_position_embeddings"] if kind != "default" else 0
    first_trained = "original_max_position_embeddings"
    trained = int(given.get(first_trained) or stated.get(first_trained) or positions)
    if kind == "dynamic":
        factor = stated["factor"]
        growth = factor * max(sequence_length, positions) / positions - (factor - 1)
        base *= growth ** (width / (width - 2))
    plain = [base ** -(pair / width) for pair in range(0, width, 2)]
    if kind == "linear":
        return Frequencies(tuple(value / stated["factor"] for value in plain))
    if kind == "llama3":
        return Frequencies(tuple(_llama3(value, stated, trained) for value in plain))
    if kind == "yarn":
        return _yarn(plain, base, stated, trained, positions)
    return Frequencies(tuple(plain))


def _llama3(value: float, stated: Content, trained: int) -> float:
    """Return a frequency: as it is if its wave is short, divided if it is long, and between the two otherwise."""
    low, high, factor = stated["low_freq_factor"], stated["high_freq_factor"], stated["factor"]
    waves = trained * value / (2 * math.pi)  # so many fit into the positions that the model was trained with
    if waves < low:
        return float(value / factor)
    if waves > high:
        return value
    smooth = (waves - low) / (high - low)
    return float((1 - smooth) * value / factor + smooth * value)


def _yarn(plain: list[float], base: float, stated: Content, trained: int, positions: int) -> Frequencies:
    factor = stated.get("factor") or positions / trained
    width, pairs = 2 * len(plain), len(plain)

    def place(turns: float) -> float:
        """Return the pair of dimensions that turns so often within the positions of the training."""
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = place(stated.get("beta_fast") or 32), place(stated.get("beta_slow") or 1)
    if stated.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    last += 0.001 if first == last else 0
    divided = [min(max((pair - first) / (last - first), 0.0), 1.0) for pair in range(pairs)]
    values = [value / factor * share + value * (1 - share) for value, share in zip(plain, divided, strict=True)]
    return Frequencies(tuple(values), _yarn_scale(stated, factor))


def _yarn_scale(stated: Content, factor: float) -> float:
    if stated.get("attention_factor") is not None:
        return float(stated["attention_factor"])
    growth = 0.1 * math.log(factor) if factor > 1 else 0.0
    some, whole = stated.get("mscale"), stated.get("mscale_all_dim")
    return (growth * some + 1.0) / (growth * whole + 1.0) if some and whole else growth + 1.0
