"""Megatron-LM: a line each so many iterations, with the mean time of those since the last line.

The first line holds the start of every library, and is dropped. The figure is the global batch over the mean of the
other lines' seconds. DeepSpeed's training of Megatron's models prints the same lines.
"""

import re

from throughline.imports.log import NUMBER, Log, Reading, Unusable, after, ascending, mean, number, precision

LINE = rf" iteration +(\d+)/ *\d+ \|.*?elapsed time per iteration \(ms\): {NUMBER}"


def read(log: Log) -> list[Reading]:
    """The run of a log."""
    lines = re.findall(LINE, log.text)
    if not lines:
        return []
    ascending([int(step) for step, _ in lines])
    seconds = mean(after([number(time) / 1000 for _, time in lines], 1, "lines"))
    batch = log.count(r"global batch size: +(\d+)") or _argument(log, "global_batch_size")
    devices, micro = _argument(log, "world_size"), _argument(log, "(?:micro_)?batch_size")
    if batch is None and micro and devices:
        batch = micro * devices // (_argument(log, "(?:tensor_)?model_parallel_size") or 1)
    if batch is None:
        raise Unusable("broken", "it prints times alone, and no global batch size to turn them into a throughput")
    hidden, layers = _argument(log, "hidden_size"), _argument(log, "num_layers")
    return [
        Reading(
            framework="Megatron-LM with DeepSpeed" if "DeepSpeed" in log.text else "Megatron-LM",
            value=batch / seconds,
            unit="sequences/s",
            rule="the global batch over the mean time per iteration of all lines after the first",
            model=f"gpt-{hidden}x{layers}" if hidden and layers else None,
            precision=precision(half=log.find(r"\bfp16 \.+ (\w+)"), brain=log.find(r"\bbf16 \.+ (\w+)"))
            if log.find(r"\bfp16 (\.)")
            else None,
            batch=micro,
            devices=devices,
        )
    ]


def _argument(log: Log, name: str) -> int | None:
    """An argument as Megatron lists it: `  hidden_size .......... 1024`."""
    return log.count(rf"(?m)^\s*(?:\[.*\] )?{name} \.+ (\d+)")
