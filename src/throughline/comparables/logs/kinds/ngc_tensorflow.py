"""NVIDIA's DeepLearningExamples in TensorFlow 1: BERT pre-training and ResNet-50, with DLLogger's lines.

BERT prints every update and, at its end, the average of the updates that the program itself does not skip. It skips
("Skipping time record ...") the warm-up and five updates after each checkpoint. PaddlePaddle's published comparison
takes this average. Since 2022, and for logs of several nodes that end without an average, it takes the mean of the
updates after the last skipped one or, if none is marked as skipped, of all updates after the first. Newer programs
print `sequences/s`. For these it takes the mean of all updates.

ResNet-50 prints every tenth iteration after 200 iterations of warm-up, and an average at its end. The comparison takes
this average. Since 2022, for runs on one node, it takes the mean without the first 5 of these lines. Only its published
logs show these changes; its text does not mention them.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import after, ascending, mean, number, numbers, only, precision, prefixed
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "NGC TensorFlow"
UPDATE = r"DLL .*Iteration: (\d+) +throughput_train : ([\d.]+) (\w+/s)"
AVERAGE = r"DLL [\d-]+ [\d:.]+ - +throughput_train : ([\d.]+)"
SKIPPED = "Skipping time record for"
IMAGES = r"DLL .*\(\d+, (\d+)\) .*total_ips : ([\d.]+)"
END = r"DLL .*\(\) +train_throughput : ([\d.]+)"
OLDEST = r":::NVLOG.* Average total_ips: ([\d.]+)"
DROPPED_LINES = 5


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    if re.search(UPDATE, log.text):
        yield _bert(log)
    elif re.search(IMAGES, log.text) or re.search(OLDEST, log.text):
        yield _resnet(log)


def _bert(log: Log) -> Reading:
    updates = re.findall(UPDATE, log.text)
    ascending([int(step) for step, *_ in updates])
    speeds = [number(speed) for _, speed, _ in updates]
    average, marked = numbers(AVERAGE, log.text), SKIPPED in log.text
    if not average and not log.ranks:
        raise Unusable(
            "cut_off", f"it breaks off after update {updates[-1][0]}: the program prints its average at the end"
        )
    if updates[0][2] == "sequences/s":
        value, rule = mean(speeds), "the mean of throughput_train over all updates"
    elif average and log.before_2022:
        value = only(average, "the average throughput_train")
        rule = "the average throughput_train that the program prints at its end, without the updates that it skips"
    elif marked:
        counted = len(re.findall(UPDATE, log.text[: log.text.rindex(SKIPPED)]))
        value = mean(after(speeds, counted, "updates"))
        rule = "the mean of throughput_train over the updates after the last one that the program skips"
    else:
        value, rule = mean(after(speeds, 1, "updates")), "the mean of throughput_train over all updates after the first"
    size = log.find(r"bert_model=(\w+)") or log.named(r"(base|large)")
    half = log.find(r"^\+ precision=(\w+)", r"\bprecision=(\w+)") or log.named(r"(fp16|fp32|amp)")
    return Reading(
        value=value,
        unit="sequences/s",
        rule=rule,
        model=prefixed("bert-", size),
        precision=precision(half),
        gradient_accumulation=log.count(r"\bnum_accumulation_steps(?:_phase1)?[=:] ?(\d+)"),
        batch=log.count(r"\btrain_batch_size: (\d+)", r"\+ batch_size=(\d+)"),
        devices=log.count(r"\bnum_gpus=(\d+)") or (log.ranks if log.ranks > 1 else None),
        software=log.find(r"(Container nvidia build = +\d+)"),
    )


def _resnet(log: Log) -> Reading:
    lines = re.findall(IMAGES, log.text)
    ascending([int(step) for step, _ in lines])
    ends, oldest = numbers(END, log.text), numbers(OLDEST, log.text)
    if oldest:
        value, rule = (
            only(oldest, "Average total_ips"),
            "Average total_ips, the average that the program prints at its end",
        )
    elif not ends:
        raise Unusable("cut_off", f"it breaks off after iteration {lines[-1][0]}: the program's average is missing")
    elif log.ranks or log.before_2022:
        value, rule = only(ends, "train_throughput"), "train_throughput, the average that the program prints at its end"
    else:
        value = mean(after([number(speed) for _, speed in lines], DROPPED_LINES, "lines"))
        rule = (
            f"the mean of total_ips over all lines after the first {DROPPED_LINES}; 200 iterations of warm-up have none"
        )
    half = log.find(r"\bamp : (\w+)") or log.named(r"(amp|fp16|fp32)")
    return Reading(
        value=value,
        unit="images/s",
        rule=rule,
        model=log.find(r"\barch : (\w+)"),
        precision=precision(half),
        batch=log.count(r"Per-GPU Batch Size (\d+)", r"\bbatch_size : (\d+)"),
        devices=log.count(r"Num GPUs (\d+)"),
    )
