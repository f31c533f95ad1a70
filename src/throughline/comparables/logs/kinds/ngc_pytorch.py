"""NVIDIA's DeepLearningExamples in PyTorch: BERT pre-training and ResNet-50, with DLLogger's lines.

BERT: at its end, the program prints the throughput of the whole run. Its clock starts at the first micro-batch, so it
drops nothing, and we take this figure. ResNet-50 prints every iteration, and a summary of all iterations.
PaddlePaddle's published comparison takes the summary. Since 2022, it takes the summary only for runs on several nodes,
which mpirun starts. For runs on one node, it drops the first iterations: 9 on one device, 8 on several. Only its
published logs show this change; its text does not mention it.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import after, ascending, mean, number, numbers, only, precision, prefixed
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "NGC PyTorch"
BERT = r"training_sequences_per_second : ([\d.]+)"
STEP = r"DLL .*Training Epoch: \d+ Training Iteration: (\d+)"
IMAGES = r"DLL .*Epoch: (\d+) Iteration: (\d+) .*train\.total_ips : ([\d.]+)"
SUMMARY = r"DLL .*Summary: .*train\.total_ips : ([\d.]+)"


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    if re.search(f"{BERT}|{STEP}", log.text):
        yield _bert(log)
    elif re.search(IMAGES, log.text):
        yield _resnet(log)


def _bert(log: Log) -> Reading:
    ends = numbers(BERT, log.text)
    if not ends:
        last = re.findall(STEP, log.text)[-1]
        raise Unusable("cut_off", f"it breaks off after iteration {last}: the program prints the throughput at its end")
    size = log.find(r"bert_config_(\w+?)\.json", r"bert-(\w+)-uncased") or log.named(r"bert[_-]([a-z]+)")
    half = log.find(r"\bfp16=(\w+)", r"16-bits training: (\w+)") or log.named(r"_(fp16|fp32|amp)")
    if log.find(r"\bamp=(True)"):
        half = "True"
    started = len(re.findall(r"device: cuda:\d+ n_gpu: 1,", log.text))
    nodes, each = log.count(r"--nnodes[ =](\d+)"), log.count(r"--nproc_per_node[ =](\d+)")
    return Reading(
        value=only(ends, "training_sequences_per_second"),
        unit="sequences/s",
        rule="the throughput that the program prints at its end: all sequences over the time since the first "
        "micro-batch, nothing dropped",
        model=prefixed("bert-", size),
        precision=precision(half),
        batch=_batch(log),
        gradient_accumulation=log.count(r"gradient_accumulation_steps[ =](\d+)"),
        devices=nodes * each if nodes and each else started or None,
        nodes=nodes,
        software=log.find(r"(Container nvidia build = +\d+)"),
    )


def _batch(log: Log) -> int | None:
    """Return the samples of one micro-batch. The command line has a GPU's samples per update, and its micro-batches."""
    if micro := log.count(r"batch_size_per_gpu : (\d+)"):
        return micro
    update, steps = log.count(r"--train_batch_size[ =](\d+)"), log.count(r"--gradient_accumulation_steps[ =](\d+)")
    return update // (steps or 1) if update else None


def _resnet(log: Log) -> Reading:
    records = re.findall(IMAGES, log.text)
    ascending([int(epoch) * 10**6 + int(iteration) for epoch, iteration, _ in records])
    summaries = numbers(SUMMARY, log.text)
    if not summaries:
        raise Unusable("cut_off", f"it breaks off after iteration {records[-1][1]}: the program's summary is missing")
    several = log.find(r"distributed : (\w+)") == "True"
    started = len(re.findall(r"^\['[^']*python[\d.]*', ", log.text, re.M)) if several else 1
    if log.ranks or log.before_2022:
        value = only(summaries, "the summary")
        rule = "the mean of train.total_ips over all iterations, as the program's summary prints it"
    else:
        dropped = 8 if several else 9
        value = mean(after([number(speed) for *_, speed in records], dropped, "iterations"))
        rule = f"the mean of train.total_ips over all iterations after the first {dropped}"
    return Reading(
        value=value,
        unit="images/s",
        rule=rule,
        model=log.find(r"\barch : (\w+)"),
        precision=precision(log.find(r"\bamp : (\w+)")),
        batch=log.count(r"\bbatch_size : (\d+)"),
        devices=None if log.ranks else started or None,
        software=log.find(r"(Container nvidia build = +\d+)"),
    )
