"""OneFlow's benchmarks as DLPerf ran them. Their lines end with the time of day, or they print a table.

ResNet-50 and BERT: the samples of 100 iterations divided by the seconds between two lines (iterations 20 and 120 of
ResNet-50, steps 19 and 119 of BERT). Partial FC: the mean of the printed throughput of lines 20 to 120 after iteration
5. GPT prints a row every few iterations: the mean of all rows after the first.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import NUMBER, after, ascending, mean, number, precision
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "OneFlow"
IMAGES = r"train: epoch \d+, iter (\d+), .*samples/s: [\d.]+ (\d{9,}\.\d+)"
BERT = r"step: (\d+), total_loss: .*throughput: [\d.]+ (\d{9,}\.\d+)"
FACES = rf"train: iter (\d+), loss.*throughput: {NUMBER}"
ROW = rf"\| (\d+) +\| \d+ +\| \d+ +\| {NUMBER} +\| {NUMBER} +\| \S+ +\|"


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    if lines := re.findall(IMAGES, log.text):
        yield _clock(log, lines, 20, 120, log.find(r"\bmodel = (\w+)"))
    elif lines := re.findall(BERT, log.text):
        yield _clock(log, lines, 19, 119, _bert(log))
    elif lines := re.findall(FACES, log.text):
        yield _faces(log, lines)
    elif lines := re.findall(ROW, log.text):
        yield _gpt(log, lines)


def _reading(log: Log, value: float, rule: str, model: str | None, unit: str = "samples/s") -> Reading:
    nodes = log.count(r"\bnum_nodes(?: \.+| =) (\d+)")
    each = log.count(r"\b(?:gpu_num_per_node|num_gpus_per_node|device_num_per_node)(?: \.+| =) (\d+)")
    half = log.find(r"\b(?:use_fp16|fp16|use_auto_mixed_precision)(?: \.+| =) (\w+)") or log.named(r"(fp16|fp32)")
    return Reading(
        value=value,
        unit=unit,
        rule=rule,
        model=model,
        precision=precision(half),
        batch=log.count(r"\b(?:batch_size_per_device|micro_batch_size|train_batch_size_per_device)(?: \.+| =) (\d+)"),
        devices=nodes * each if nodes and each else None,
        nodes=nodes,
    )


def _clock(log: Log, lines: list[tuple[str, str]], first: int, last: int, model: str | None) -> Reading:
    ascending([int(step) for step, _ in lines])
    times = {int(step): number(time) for step, time in lines}
    if first not in times or last not in times:
        raise Unusable(
            "cut_off", f"the rule needs the lines of iterations {first} and {last}; its last is {max(times)}"
        )
    seconds = times[last] - times[first]
    size = _reading(log, 1.0, "", model)
    if not (size.batch and size.devices) or seconds <= 0:
        raise Unusable("broken", "batch_size_per_device, gpu_num_per_node, num_nodes and rising times are needed")
    value = size.batch * size.devices * (last - first) / seconds
    rule = f"samples over seconds between the lines of iterations {first} and {last}"
    return _reading(log, value, rule, model, "images/s" if first == 20 else "sequences/s")


def _faces(log: Log, lines: list[tuple[str, str]]) -> Reading:
    ascending([int(step) for step, _ in lines])
    window = [number(speed) for step, speed in lines if int(step) > 5][19:120]
    if len(window) < 101:
        raise Unusable("cut_off", f"the rule needs 120 lines after iteration 5; it has {len(window) + 19} at most")
    return _reading(
        log,
        mean(window),
        "the mean of the throughput of lines 20 to 120 after iteration 5",
        log.find(r"network = (\w+)"),
    )


def _gpt(log: Log, rows: list[tuple[str, str, str]]) -> Reading:
    ascending([int(step) for step, *_ in rows])
    value = mean(after([number(speed) for _, speed, _ in rows], 1, "rows"))
    hidden, layers = log.find(r"hidden_size \.+ (\d+)"), log.find(r"num_layers \.+ (\d+)")
    model = f"gpt-{hidden}x{layers}" if hidden and layers else None
    return _reading(log, value, "the mean of the throughput of all rows after the first", model, "sequences/s")


def _bert(log: Log) -> str | None:
    layers = log.find(r"num_hidden_layers = (\d+)")
    return {"12": "bert-base", "24": "bert-large"}.get(layers or "")
