"""GluonNLP's BERT on MXNet, with DLPerf's runs of it. It prints a line every few steps: `throughput=133.0K tks/s`.

DLPerf logs each of 200 steps on every rank, with its latency. DLPerf's own script computes the speed of each line from
the latency (in ms, one decimal), takes the median over the ranks, and then the mean of the steps after the first 100.
For a log without latencies, no published rule exists. We take the median of all lines after the first 10.
"""

import re
from collections.abc import Iterator
from statistics import median

from throughline.comparables.logs.figures import NUMBER, after, ascending, mean, number, precision, prefixed
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "GluonNLP"
LINE = rf"\[step (\d+)\].*?throughput={NUMBER}K tks/s(?:.*?latency={NUMBER} ?ms/batch)?"
DROPPED_LINES, DROPPED_STEPS = 10, 100
SHAPES = {"12_768_12": "bert-base", "24_1024_16": "bert-large"}
HORIZONTAL = r"_b(\d+)_\w+_\d+\.log$"


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    lines = re.findall(LINE, log.text)
    if not lines:
        return
    kind = log.find(r"\bdtype='(\w+)'") or log.named(r"(fp16|fp32)")
    latencies = [number(latency) for *_, latency in lines if latency]
    devices: int | None
    batch: int | None
    if latencies:
        value, devices, batch, rule = _dlperf(log, [int(step) for step, *_ in lines], latencies)
        unit = "sequences/s"
    else:
        ascending([int(step) for step, *_ in lines])
        gpus = log.find(r"\bgpus='([\d,]+)'")
        devices, batch, unit = len(gpus.split(",")) if gpus else None, log.count(r"\bbatch_size=(\d+)"), "tokens/s"
        value = 1000 * median(after([number(speed) for _, speed, _ in lines], DROPPED_LINES, "lines"))
        rule = f"the median of the throughput over all lines after the first {DROPPED_LINES}"
    shape = log.find(r"\bmodel='bert_(\d+_\d+_\d+)_\w+'")
    yield Reading(
        framework="MXNet (GluonNLP)",
        value=value,
        unit=unit,
        rule=rule,
        model=SHAPES.get(shape or "", prefixed("bert ", shape)),
        precision=precision(kind),
        batch=batch,
        devices=devices,
        software=prefixed("mxnet at ", log.find(r"(?m)^mxnet == ([0-9a-f]{12})[0-9a-f]{28}")),
    )


def _dlperf(log: Log, steps: list[int], latencies: list[float]) -> tuple[float, int, int, str]:
    devices = steps.count(steps[0])
    whole = len(steps) // devices
    if len(latencies) != len(steps) or devices * whole != len(steps):
        raise Unusable("cut_off", f"{len(steps)} lines are no whole steps of {devices} ranks")
    batch = log.named(HORIZONTAL) or log.find(r"\bbatch_size=(\d+)")
    if batch is None:
        raise Unusable(
            "broken", "it prints latencies alone, and neither the log nor its name (bert_b32_...) has the batch"
        )
    speeds = [1000 / round(latency, 1) * int(batch) * devices for latency in latencies]
    by_step = [median(speeds[start : start + devices]) for start in range(0, len(speeds), devices)]
    rule = f"DLPerf's: the median over the ranks, then the mean of the steps after the first {DROPPED_STEPS}"
    return round(mean(after(by_step, DROPPED_STEPS, "steps")), 2), devices, int(batch), rule
