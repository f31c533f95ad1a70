"""The results of gpu.py as Markdown. It also says what was not measured."""

from __future__ import annotations

from typing import Any

from gpu_pieces import slower
from harness import Ratio, head, line


def markdown(value: dict[str, Any]) -> str:
    """Return the whole page, made from the content of gpu.json."""
    parts = [*_about(value), *_checks(value["checks"]), *_pieces(value["pieces"], value["card"]), *_rows(value["rows"])]
    parts += _real(value["real"])
    parts += _matrix(value["matrix"])
    if value["failures"]:
        parts += ["", "## What failed", ""]
        parts += [f"* {failure['part']}: {failure['reason']}" for failure in value["failures"]]
    return "\n".join(parts)


def _about(value: dict[str, Any]) -> list[str]:
    card = value["card"]
    lines = ["# The training step on one GPU", ""]
    if value["dry"]:
        lines += ["A dry run with tiny sizes: these figures mean nothing.", ""]
    if card.get("double_of_cuda"):
        lines += [f"This ran on {card['double_of_cuda']}: these figures mean nothing.", ""]
    keys = ("driver", "torch", "transformers", "cuda", "cudnn")
    versions = [f"{key} {card[key]}" for key in keys if card.get(key)]
    lines += [", ".join([value["started"], card.get("name") or value["device"], *versions]) + "."]
    peaks = card.get("matmul_flops_per_s") or {}
    known = [f"{name} {rate / 1e12:.1f}" for name, rate in peaks.items() if rate]
    if known:
        lines += ["", "Fastest matrix products, TFLOP/s: " + ", ".join(known) + "."]
    if card.get("bandwidth_bytes_per_s"):
        lines += [f"Memory bandwidth of a copy: {card['bandwidth_bytes_per_s'] / 1e9:.0f} GB/s."]
    return lines


def _checks(checks: list[dict[str, Any]]) -> list[str]:
    lines = ["", "## Checks: losses against fp32", ""]
    lines += [line("precision", "largest difference", "tolerated", ""), "|---|--:|--:|---|"]
    for check in checks:
        verdict = check["reason"] or ("passed" if check["passed"] else "FAILED")
        lines += [line(check["what"], number(check["largest_difference"], ".1e"), f"{check['tolerance']:.0e}", verdict)]
    return lines


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["", "## Full-length synthetic data, and the others in turn", ""]
    lines += ["How many times as long a step of the others takes: the median of the rounds, and where it lies.", ""]
    names = ["row", "samples/s", "tokens/s", "GB of memory", "expected / goal / best known"]
    names += ["MFU", "of fastest products", "of bandwidth (estimated)"]
    lines += [line(*names, "others", "where a step's time goes"), "|---" + "|--:" * 7 + "|---|---|"]
    for row in rows:
        goals = _goals(row)
        if row["status"] != "ok":
            lines += [line(row["name"], row["status"], "", "", goals, "", "", "", row["reason"], "")]
            continue
        others = [f"{label} {Ratio(**each)}" for label, each in row["ratios"].items()]
        others += [f"{label}: {reason}" for label, reason in row["refused"].items()]
        given = [number(row[key], ".1%") for key in ("mfu", "matmul_share", "bandwidth_share")]
        speed = f"{row['samples_per_s']['ours']:,.0f}"
        size = number(row["tokens_per_s"], ",.0f"), f"{row['peak_memory_bytes']['ours'] / 1e9:.1f}"
        lines += [line(row["name"], speed, *size, goals, *given, "; ".join(others), kernels(row["kernels"]))]
    return lines + _short(rows)


def _least_ms(piece: dict[str, Any], card: dict[str, Any]) -> float | None:
    """Return how long the card's own fastest bf16 product and copy would take for a piece; None if not measured."""
    products, bandwidth = (card.get("matmul_flops_per_s") or {}).get("bf16"), card.get("bandwidth_bytes_per_s")
    parts = [
        1000 * amount / speed
        for amount, speed in ((piece["flops"], products), (piece["bytes"], bandwidth))
        if amount and speed
    ]
    return max(parts, default=None)


def _pieces(pieces: list[dict[str, Any]], card: dict[str, Any]) -> list[str]:
    """Return the pieces of a step alone: nothing, if none was asked for."""
    if not pieces:
        return []
    lines = [
        "",
        "## Pieces of a step alone, forward and backward",
        "",
        "*Least*: the piece's FLOPs at the fastest product above, or its bytes at the bandwidth above.",
        "",
        line("piece", "what", "how", "ms", "least, ms", "least / ms", "GB of memory", ""),
    ]
    lines += ["|---|---|---|--:|--:|--:|--:|---|"]
    for one in pieces:
        memory = number(one["peak_memory_bytes"] and one["peak_memory_bytes"] / 1e9, ".2f")
        least = _least_ms(one, card)
        share = least / one["ms"] if least and one["ms"] else None
        times = number(one["ms"], ".3f"), number(least, ".3f"), number(share, ".0%")
        lines += [line(one["piece"], one["what"], one["how"], *times, memory, one["reason"] or "")]
    lines += [f"* {text}" for text in slower(pieces)]
    exchange = "Exchange: one card exchanges nothing; `tables/network.csv` of a run on several has it (runs.network)."
    lines += [
        "",
        exchange,
        "Input: `benchmarks/reading_images.py`, and the part with real shards of `--workload bert`.",
    ]
    return lines


def _goals(row: dict[str, Any]) -> str:
    """Return what the card should reach, and how the measured figure lies to it."""
    if not (expected := row.get("expected")):
        return str(row.get("verdict", "–"))
    high = f" to {expected['high']:,.0f}" if expected["high"] else ""
    known = number(expected["known"], ",.0f") + (f" ({expected['source']})" if expected["source"] else "")
    return f"{expected['low']:,.0f}{high} / {number(expected['goal'], ',.0f')} / {known}: {row['verdict']}"


def _short(rows: list[dict[str, Any]]) -> list[str]:
    """Return what to look at in the rows that fall short."""
    lines = [f"* {row['name']}: {text}" for row in rows for text in row.get("look_at") or ()]
    return ["", "What to look at where a row falls short:", "", *lines] if lines else []


def _real(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["", "## Shards against data on the device, padding computed and left out", ""]
    names = ["row", "real tokens", "samples/s", "real tokens/s", "without padding: real tokens/s"]
    lines += [line(*names, "a step takes so many times"), "|---|--:|--:|--:|--:|---|"]
    words = {
        "resident": "that of the same batches on the device", "full length": "that of full samples without a mask",
        "without padding": "that of the real tokens alone",
        "without padding, not compiled": "that of the real tokens, not compiled",
    }  # fmt: skip
    for row in rows:
        if row["status"] != "ok":
            lines += [line(row["name"], row["status"], "", "", "", row["reason"])]
            continue
        others = [f"{Ratio(**each).inverse()} {words[label]}" for label, each in row["ratios"].items()]
        others += [f"not compared with {words[label]}: {reason}" for label, reason in row["refused"].items()]
        tokens = [number(row["real_tokens_per_s"].get(label), ",.0f") for label in ("ours", "without padding")]
        speed = f"{row['samples_per_s']['ours']:,.0f}"
        lines += [line(row["name"], f"{row['real_token_share']:.1%}", speed, *tokens, "; ".join(others))]
    return lines if rows else [*lines, "not measured"]


def _matrix(cells: list[dict[str, Any]]) -> list[str]:
    sizes = sorted({cell["batch"] for cell in cells})
    lines = ["", "## The matrix: samples/s (GB of memory)", ""]
    lines += head("precision", "compiled", "recomputed", *sizes, left=3)
    table: dict[tuple[Any, ...], dict[int, str]] = {}
    for cell in cells:
        memory = f" ({cell['peak_memory_bytes'] / 1e9:.1f})" if cell["peak_memory_bytes"] else ""
        text = f"{cell['samples_per_s']:,.0f}{memory}" if cell["status"] == "ok" else cell["status"]
        combination = cell["precision"], cell["compile"], cell["activation_checkpointing"]
        table.setdefault(combination, {})[cell["batch"]] = text
    for (precision, *switches), found in table.items():
        words = ["yes" if on else "no" for on in switches]
        lines += [line(precision, *words, *(found.get(size, "") for size in sizes))]
    return lines


def number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def kernels(seconds_of: dict[str, float] | None) -> str:
    """Return the shares of a step by kind of kernel, and the share in which no kernel runs."""
    if not seconds_of:
        return "–"
    busy = {kind: seconds for kind, seconds in seconds_of.items() if kind != "wall"}
    wall = max(seconds_of["wall"], sum(busy.values()))
    parts = sorted(busy.items(), key=lambda item: -item[1])
    text = [f"{kind} {seconds / wall:.0%}" for kind, seconds in parts if seconds / wall >= 0.005]
    return ", ".join([*text, f"idle {1 - sum(busy.values()) / wall:.0%}"])
