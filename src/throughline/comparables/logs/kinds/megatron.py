"""Megatron-LM: it prints a line every few iterations, with the mean time of the iterations since the last line.

We drop the first line, because its time includes the start of all libraries. Our figure is the global batch divided by
the mean of the other lines' seconds. DeepSpeed prints the same lines when it trains Megatron's models.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import NUMBER, after, ascending, mean, number, precision
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "Megatron-LM"
LINE = rf" iteration +(\d+)/ *\d+ \|.*?elapsed time per iteration \(ms\): {NUMBER}"


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    lines = re.findall(LINE, log.text)
    if not lines:
        return
    ascending([int(step) for step, _ in lines])
    seconds = mean(after([number(time) / 1000 for _, time in lines], 1, "lines"))
    batch = log.count(r"global batch size: +(\d+)") or _argument(log, "global_batch_size")
    devices, micro = _argument(log, "world_size"), _argument(log, "(?:micro_)?batch_size")
    if batch is None and micro and devices:
        batch = micro * devices // (_argument(log, "(?:tensor_)?model_parallel_size") or 1)
    if batch is None:
        raise Unusable("broken", "it prints times alone, and no global batch size to turn them into a throughput")
    hidden, layers = _argument(log, "hidden_size"), _argument(log, "num_layers")
    half = log.find(r"\bfp16 \.+ (\w+)")
    yield Reading(
        framework="Megatron-LM with DeepSpeed" if "DeepSpeed" in log.text else "Megatron-LM",
        value=batch / seconds,
        unit="sequences/s",
        rule="the global batch over the mean time per iteration of all lines after the first",
        model=f"gpt-{hidden}x{layers}" if hidden and layers else None,
        precision=precision(half, log.find(r"\bbf16 \.+ (\w+)")) if half else None,
        batch=micro,
        devices=devices,
    )


def _argument(log: Log, name: str) -> int | None:
    """Return an argument that Megatron lists in this form: `  hidden_size .......... 1024`."""
    return log.count(rf"(?m)^\s*(?:\[.*\] )?{name} \.+ (\d+)")
