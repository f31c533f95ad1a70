"""nanoGPT: train.py prints the time of each iteration, and bench.py the time of a window of iterations.

train.py drops the first five iterations before it computes its own speed, and so do we. We also drop an iteration that
evaluates (with a line `step ...` before it), because its time includes the evaluation. Our figure is the tokens of an
iteration divided by the mean time. bench.py drops ten iterations and prints the mean of twenty. We take that time.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import NUMBER, ascending, mean, number
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "nanoGPT"
LINE = rf"(?m)(^step \d+: train loss .*\n(?:saving checkpoint .*\n)?)?^iter (\d+): loss \S+, time {NUMBER}ms(?:, mfu)?"
WINDOW = rf"time per iteration: {NUMBER}ms, MFU: "
SETTLED = 5


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    lines = re.findall(LINE, log.text) if "\niter " in f"\n{log.text}" else []
    window = re.findall(WINDOW, log.text)
    if not (lines or window):
        return
    if window:
        times, rule = [number(window[-1])], "the time per iteration that bench.py prints: the mean of 20 after 10"
    else:
        ascending([int(step) for _, step, _ in lines])
        times = [number(time) for evaluates, step, time in lines if int(step) >= SETTLED and not evaluates]
        rule = f"the tokens of an iteration over the mean time of those from {SETTLED} on that do not evaluate"
    if not times:
        raise Unusable("cut_off", f"it has no iteration from {SETTLED} on that does not evaluate")
    tokens = (log.find(r"tokens per iteration will be: ([\d,]+)") or "").replace(",", "")
    batch, length = log.count(r"(?m)^batch_size = (\d+)"), log.count(r"(?m)^block_size = (\d+)")
    if not tokens and window and batch and length:
        tokens = str(batch * length)
    size = log.find(r"number of parameters: ([\d.]+M)")
    value, unit = (number(tokens) / mean(times) * 1000, "tokens/s") if tokens else (1000 / mean(times), "steps/s")
    yield Reading(
        value=value,
        unit=unit,
        rule=rule if tokens else f"one over {rule.removeprefix('the tokens of an iteration over ')}",
        model=f"nanoGPT, {size} parameters" if size else None,
        precision={"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}.get(log.find(r"dtype = '(\w+)'") or ""),
        batch=batch,
        devices=log.count(r"(?:world_size|WORLD_SIZE)\W+(\d+)"),
    )
