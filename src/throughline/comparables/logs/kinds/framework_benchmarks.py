"""The benchmarks of PaddlePaddle, OneFlow and GluonNLP (MXNet): BERT, ResNet-50, GPT and Partial FC.

* *PaddlePaddle* (BERT of PaddleNLP, ResNet-50 of PaddleClas): the `ips` of a line is the speed of one card. Paddle's
  own analysis drops the first lines, takes the mean of the others, and multiplies it by the number of cards. For BERT
  it drops 100 steps. For the oldest runs on several nodes, whose program prints no Namespace, it drops only the first
  line. For ResNet-50 it drops ten lines. For runs of Paddle's current benchmark (BERT prints `total step`, or the
  file's name ends in `_N1C8_log`) it drops ten lines, and then the 5 slowest and the 5 fastest lines, or the slowest
  and fastest 5 percent if these are more.
* *OneFlow*, as DLPerf ran it. ResNet-50 and BERT: the samples of 100 iterations divided by the seconds between two
  lines, which end with the time of day (iterations 20 and 120 of ResNet-50, steps 19 and 119 of BERT). Partial FC: the
  mean of the printed throughput of lines 20 to 120 after iteration 5. GPT prints a table: the mean of all rows after
  the first.
* *GluonNLP*: DLPerf logs each of 200 steps on every rank, with its latency. DLPerf's own script computes the speed of
  each line from the latency (in ms, one decimal), takes the median over the ranks, and then the mean of the steps
  after the first 100. For a log without latencies (`throughput=133.0K tks/s`), no published rule exists. We take the
  median of all lines after the first 10.
"""

import re
from collections.abc import Iterator
from statistics import median

from throughline.comparables.logs.log import NUMBER, Log, Unusable, after, ascending, mean, number, precision, prefixed
from throughline.records import ImportedRun

PADDLE = (
    r"(?:(tobal|total|global) step: (\d+),|epoch:(\d+) +train step:(\d+))"
    rf".*?\bips: {NUMBER} (?:sequences|images|samples)/s"
)
PADDLE_BATCH = (
    r"Namespace\(.*\bbatch_size=(\d+)",
    r"'--batch_size', '(\d+)'",
    r"sampler\.batch_size=(\d+)",
    r"avg_samples: (\d+)",
    r"(?s)\bTrain : .{0,2500}?\bbatch_size : (\d+)",
)
CARDS_OF_A_NODE, DROPPED_STEPS, DROPPED_LINES = 8, 100, 10
TRIMMED, TRIMMED_SHARE = 5, 0.05
ONEFLOW_IMAGES = r"train: epoch \d+, iter (\d+), .*samples/s: [\d.]+ (\d{9,}\.\d+)"
ONEFLOW_BERT = r"step: (\d+), total_loss: .*throughput: [\d.]+ (\d{9,}\.\d+)"
ONEFLOW_FACES = rf"train: iter (\d+), loss.*throughput: {NUMBER}"
ONEFLOW_GPT = rf"\| (\d+) +\| \d+ +\| \d+ +\| {NUMBER} +\| {NUMBER} +\| \S+ +\|"
GLUONNLP = rf"\[step (\d+)\].*?throughput={NUMBER}K tks/s(?:.*?latency={NUMBER} ?ms/batch)?"
BERTS = {"12": "bert-base", "24": "bert-large", "12_768_12": "bert-base", "24_1024_16": "bert-large"}
"""The names of models by their layers, or by layers, width and heads."""


def paddle(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of PaddlePaddle."""
    lines = re.findall(PADDLE, log.text)
    if not lines:
        return
    steps = [int(step) if step else int(epoch) * 10**6 + int(within) for _, step, epoch, within, _ in lines]
    ascending(steps)
    speeds, devices, bert = [number(speed) for *_, speed in lines], _cards(log), not lines[0][2]
    if devices is None:
        raise Unusable(
            "broken", "its figures are of one card, and neither the log nor its name says how many there were"
        )
    rule = f"the lines after the first {DROPPED_LINES}"
    if lines[0][0] == "total" or log.named(r"(N\d+C\d+_log)"):
        speeds = sorted(after(speeds, DROPPED_LINES, "lines"))
        out = max(TRIMMED, int(len(speeds) * TRIMMED_SHARE))
        if len(speeds) <= 2 * out:
            raise Unusable("cut_off", f"{len(speeds)} lines after the first {DROPPED_LINES} are too few: {out} fall out"
                           " at either end")  # fmt: skip
        kept, rule = speeds[out : len(speeds) - out], f"{rule}, without the {out} slowest and the {out} fastest"
    elif not bert:
        kept = after(speeds, DROPPED_LINES, "lines")
    elif devices > CARDS_OF_A_NODE and "Namespace(" not in log.text:
        kept, rule = after(speeds, 1, "lines"), "the lines after the first"
    else:
        kept = after(speeds, sum(step <= DROPPED_STEPS for step in steps), "lines")
        rule = f"the lines after the first {DROPPED_STEPS} steps"
    half = (
        log.find(r"\buse_amp=(\w+)", r"'--use_amp', '(\w+)'")
        or ("True" if re.search(r"INFO: +AMP :|use_pure_fp16[=:] ?True", log.text) else None)
        or ("False" if "ppcls" in log.text else log.named(r"(fp16|fp32|amp)"))
    )
    model = log.find(r"(bert-\w+)-uncased", r"(?s)Arch : .{0,200}?\bname : (\w+)")
    yield ImportedRun(
        value=mean(kept) * devices,
        unit="sequences/s" if bert else "images/s",
        rule=f"the mean of ips over {rule}, times the number of cards",
        model=model and model.lower(),
        precision=precision(half),
        batch_size_per_device=log.count(*PADDLE_BATCH),
        devices=devices,
        hardware=prefixed("GPU of compute capability ", log.find(r"GPU Compute Capability: ([\d.]+)")),
        software=prefixed("CUDA runtime ", log.find(r"Runtime API Version: ([\d.]+)")),
    )


def _cards(log: Log) -> int | None:
    """Return the number of cards; None if unknown.

    It is from the launcher's table, from the file's name, or from the other ranks that the first rank waits for.
    """
    named = log.count(r"PADDLE_TRAINERS_NUM +(\d+)") or log.named(r"gpu(\d+)") or log.named(r"N1C(\d+)")
    if named:
        return int(named)
    if waited := log.find(r"not ready endpoints:\[([^\]]*)\]"):
        return 1 + len(waited.split(","))
    return 1 if "PADDLE_TRAINER" not in log.text and "paddle.distributed.launch" not in log.text else None


def oneflow(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of OneFlow."""
    nodes = log.count(r"\bnum_nodes(?: \.+| =) (\d+)")
    each = log.count(r"\b(?:gpu_num_per_node|num_gpus_per_node|device_num_per_node)(?: \.+| =) (\d+)")
    batch = log.count(r"\b(?:batch_size_per_device|micro_batch_size|train_batch_size_per_device)(?: \.+| =) (\d+)")
    devices, unit = nodes * each if nodes and each else None, "sequences/s"
    hidden, layers = log.find(r"hidden_size \.+ (\d+)"), log.find(r"num_layers \.+ (\d+)")
    if lines := re.findall(ONEFLOW_IMAGES, log.text):
        value, rule = _between(lines, 20, 120, batch, devices)
        unit, model = "images/s", log.find(r"\bmodel = (\w+)")
    elif lines := re.findall(ONEFLOW_BERT, log.text):
        value, rule = _between(lines, 19, 119, batch, devices)
        model = BERTS.get(log.find(r"num_hidden_layers = (\d+)") or "")
    elif lines := re.findall(ONEFLOW_FACES, log.text):
        window = [number(speed) for step, speed in lines if int(step) > 5][19:120]
        if len(window) < 101:
            raise Unusable("cut_off", f"the rule needs 120 lines after iteration 5; it has {len(window) + 19} at most")
        value, rule = mean(window), "the mean of the throughput of lines 20 to 120 after iteration 5"
        unit, model = "samples/s", log.find(r"network = (\w+)")
    elif lines := re.findall(ONEFLOW_GPT, log.text):
        value = mean(after([number(speed) for _, speed, _ in lines], 1, "rows"))
        rule = "the mean of the throughput of all rows after the first"
        model = f"gpt-{hidden}x{layers}" if hidden and layers else None
    else:
        return
    ascending([step for step, *_ in lines])
    half = log.find(r"\b(?:use_fp16|fp16|use_auto_mixed_precision)(?: \.+| =) (\w+)") or log.named(r"(fp16|fp32)")
    yield ImportedRun(
        value=value,
        unit=unit,
        rule=rule,
        model=model,
        precision=precision(half),
        batch_size_per_device=batch,
        devices=devices,
        nodes=nodes,
    )


def _between(
    lines: list[tuple[str, str]], first: int, last: int, batch: int | None, devices: int | None
) -> tuple[float, str]:
    """Return the samples per second between two lines that end with the time of day, and the rule in words."""
    times = {int(step): number(time) for step, time in lines}
    if first not in times or last not in times:
        raise Unusable(
            "cut_off", f"the rule needs the lines of iterations {first} and {last}; its last is {max(times)}"
        )
    seconds = times[last] - times[first]
    if not (batch and devices) or seconds <= 0:
        raise Unusable("broken", "batch_size_per_device, gpu_num_per_node, num_nodes and rising times are needed")
    rule = f"samples over seconds between the lines of iterations {first} and {last}"
    return batch * devices * (last - first) / seconds, rule


def gluonnlp(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of GluonNLP."""
    lines = re.findall(GLUONNLP, log.text)
    if not lines:
        return
    latencies = [number(latency) for *_, latency in lines if latency]
    batch, unit, gpus = log.count(r"\bbatch_size=(\d+)"), "sequences/s", log.find(r"\bgpus='([\d,]+)'")
    devices = [step for step, *_ in lines].count(lines[0][0]) if latencies else gpus and len(gpus.split(","))
    if latencies and devices:
        if len(latencies) != len(lines) or len(lines) % devices:
            raise Unusable("cut_off", f"{len(lines)} lines are no whole steps of {devices} ranks")
        batch = int(log.named(r"_b(\d+)_\w+_\d+\.log$") or batch or 0)
        if not batch:
            raise Unusable(
                "broken", "it prints latencies alone, and neither the log nor its name (bert_b32_...) has the batch"
            )
        speeds = [1000 / round(latency, 1) * batch * devices for latency in latencies]
        by_step = [median(speeds[start : start + devices]) for start in range(0, len(speeds), devices)]
        value = round(mean(after(by_step, DROPPED_STEPS, "steps")), 2)
        rule = f"DLPerf's: the median over the ranks, then the mean of the steps after the first {DROPPED_STEPS}"
    else:
        ascending([step for step, *_ in lines])
        unit = "tokens/s"
        value = 1000 * median(after([number(speed) for _, speed, _ in lines], DROPPED_LINES, "lines"))
        rule = f"the median of the throughput over all lines after the first {DROPPED_LINES}"
    shape = log.find(r"\bmodel='bert_(\d+_\d+_\d+)_\w+'")
    yield ImportedRun(
        framework="MXNet (GluonNLP)",
        value=value,
        unit=unit,
        rule=rule,
        model=BERTS.get(shape or "", prefixed("bert ", shape)),
        precision=precision(log.find(r"\bdtype='(\w+)'") or log.named(r"(fp16|fp32)")),
        batch_size_per_device=batch,
        devices=devices or None,
        software=prefixed("mxnet at ", log.find(r"(?m)^mxnet == ([0-9a-f]{12})[0-9a-f]{28}")),
    )


KINDS = {"PaddlePaddle": paddle, "OneFlow": oneflow, "GluonNLP": gluonnlp}
