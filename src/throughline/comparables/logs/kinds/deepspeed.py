"""DeepSpeed: each line of its throughput timer has the running average since the third step.

The timer itself drops the first steps (`start_step`). Our figure is the last running average.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import NUMBER, ascending, number, precision, prefixed
from throughline.comparables.logs.kinds import megatron
from throughline.comparables.logs.log import Log, Reading

NAME = "DeepSpeed"
NEW = rf"global_step=(\d+), RunningAvgSamplesPerSec={NUMBER}"
OLD = rf"\b\d+/(\d+), SamplesPerSec={NUMBER}"


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    lines = re.findall(NEW, log.text) or re.findall(OLD, log.text)
    if not lines or re.search(megatron.LINE, log.text):
        return
    ascending([int(step) for step, _ in lines])
    half, brain = (log.find(rf"\b{key} \.+ (\w+)") for key in ("fp16_enabled", "bfloat16_enabled"))
    yield Reading(
        value=number(lines[-1][1]),
        unit="samples/s",
        rule="the last running average of samples per second; DeepSpeed's timer drops the first two steps",
        precision=precision(half, brain),
        batch=log.count(r"train_micro_batch_size_per_gpu \.+ (\d+)"),
        devices=log.count(r"\bworld_size \.+ (\d+)", r"\bworld_size=(\d+)"),
        software=prefixed("deepspeed ", log.find(r"DeepSpeed info: version=([\w.+]+)")),
    )
