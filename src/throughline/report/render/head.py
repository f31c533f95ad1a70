"""What stands above a benchmark's tables: its figures in large, and how it was set up, in words."""

from __future__ import annotations

from throughline import statistics
from throughline.records import Summary
from throughline.report.render import markup, sentences


def figures(best: sentences.Best | None) -> list[dict[str, str]]:
    """The headline's numbers, large."""
    if best is None:
        return []
    cell, world = best.cell, best.row.topology.world
    figures = [{"value": markup.reading(best.speed), "unit": "samples/s", "what": f"on {sentences.devices(best)}"}]
    if world > 1 and cell.speedup is not None:
        ends = cell.speedup_range
        what = "speedup over one device" + (f", {ends[0]:.2f} to {ends[1]:.2f} by the ranges" if ends else "")
        figures.append({"value": f"{cell.speedup:.2f}", "unit": "×", "what": what})
        figures.append({"value": markup.percent(cell.efficiency), "unit": "", "what": "efficiency"})
    width = statistics.spread([value for value in cell.values if value])
    figures.append(
        {
            "value": markup.percent(width, 1) if width is not None else "n/a",
            "unit": "",
            "what": f"spread of {cell.n_ok} of {cell.n} repeats",
        }
    )
    return figures


def settings(summary: Summary) -> list[tuple[str, str]]:
    """How one benchmark was set up, in words."""
    optimizer, options, steps = summary.optimizer, summary.options, summary.steps
    cap = f", in at most {steps.at_most_s:g} s" if steps.at_most_s is not None else ""
    repeats = max((cell.n for series in summary.frameworks.values() for cell in series.values()), default=0)
    data = f"{summary.data.rows:,} rows" if summary.data else "made-up tokens, nothing is read"
    coverage = statistics.range_coverage(repeats)
    sure = f"; their range holds the true median with {markup.percent(coverage, 1)} probability" if coverage else ""
    return [
        ("model", f"{summary.model}, {summary.parameters['sequence']} tokens per sample"),
        ("device", summary.device.name if summary.device else "n/a"),
        ("steps", f"{steps.warmup} to warm up, then {steps.timed} timed{cap}"),
        ("repeats", f"{repeats} per cell, interleaved{sure}"),
        ("optimizer", f"{optimizer.name}, learning rate {optimizer.learning_rate:g}, "
                      f"weight decay {optimizer.weight_decay:g}"),
        ("dropout", f"{options.dropout:g}"),
        ("data", data),
        *([("mathematics", _mathematics(summary))] if summary.mathematics else []),
    ]  # fmt: skip


def _mathematics(summary: Summary) -> str:
    """How far each framework's losses are from the reference, in words."""
    parts = []
    for framework, found in (summary.mathematics or {}).items():
        size = "" if found.largest_difference is None else f" ({found.largest_difference:.0e})"
        parts.append(f"{framework} {found.verdict}{size}")
    return "loss against a float64 reference: " + ", ".join(parts)
