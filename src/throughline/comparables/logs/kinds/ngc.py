"""NVIDIA's DeepLearningExamples: BERT and ResNet-50 in PyTorch and TensorFlow 1, ResNet-50 in MXNet.

All print DLLogger's lines. The rules are those of PaddlePaddle's published comparison. It changed the rules in 2022 for
runs on one node. Only its published logs show this change; its text does not mention it.

* *PyTorch, BERT*: the throughput of the whole run, which the program prints at its end. Its clock starts at the first
  micro-batch, so nothing is dropped.
* *PyTorch, ResNet-50*: the program's summary of all iterations. Since 2022, on one node: the mean without the first
  iterations, 9 on one device and 8 on several.
* *TensorFlow, BERT*: the average that the program prints at its end. The program leaves out ("Skipping time record
  ...") the warm-up and five updates after each checkpoint. Since 2022, and for logs of several nodes without an
  average: the mean of the updates after the last skipped one or, if none is marked as skipped, of all updates after
  the first. Newer programs print `sequences/s`; for these it is the mean of all updates.
* *TensorFlow, ResNet-50*: the average at the end. Since 2022, on one node: the mean of the lines after the first 5.
  The program prints every tenth iteration after 200 iterations of warm-up.
* *MXNet, ResNet-50*: the harmonic mean of the epochs' images per second without the first epoch, which is all images
  divided by all seconds. A file may have several runs, one for each number of GPUs. Each begins with its parameters.
"""

import re
from collections.abc import Iterator
from statistics import harmonic_mean

from throughline.comparables.logs.log import Log, Unusable, after, ascending, mean, number, only, precision, prefixed
from throughline.records import ImportedRun

CONTAINER = r"(Container nvidia build = +\d+)"
TORCH_BERT = r"training_sequences_per_second : ([\d.]+)"
TORCH_STEP = r"DLL .*Training Epoch: \d+ Training Iteration: (\d+)"
TORCH_IMAGES = r"DLL .*Epoch: (\d+) Iteration: (\d+) .*train\.total_ips : ([\d.]+)"
TORCH_SUMMARY = r"DLL .*Summary: .*train\.total_ips : ([\d.]+)"
UPDATE = r"DLL .*Iteration: (\d+) +throughput_train : ([\d.]+) (\w+/s)"
AVERAGE = r"DLL [\d-]+ [\d:.]+ - +throughput_train : ([\d.]+)"
SKIPPED = "Skipping time record for"
IMAGES = r"DLL .*\(\d+, (\d+)\) .*total_ips : ([\d.]+)"
END = r"DLL .*\(\) +train_throughput : ([\d.]+)"
OLDEST_END = r":::NVLOG.* Average total_ips: ([\d.]+)"
DROPPED_LINES = 5
MXNET_START = r"DLL [\d-]+ [\d:.]+ - PARAMETER arch : resnet"
MXNET_EPOCH = r"DLL .*Epoch: \d+ +train\.loss : \S+ +train\.ips : ([\d.]+)"
MXNET_END = r"DLL .*Summary: .*train\.ips : [\d.]+"


def pytorch(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of a program in PyTorch."""
    if re.search(f"{TORCH_BERT}|{TORCH_STEP}", log.text):
        yield _pytorch_bert(log)
    elif re.search(TORCH_IMAGES, log.text):
        yield _pytorch_resnet(log)


def _pytorch_bert(log: Log) -> ImportedRun:
    ends = log.numbers(TORCH_BERT)
    if not ends:
        last = re.findall(TORCH_STEP, log.text)[-1]
        raise Unusable("cut_off", f"it breaks off after iteration {last}: the program prints the throughput at its end")
    half = log.find(r"\bfp16=(\w+)", r"16-bits training: (\w+)") or log.named(r"_(fp16|fp32|amp)")
    started = len(re.findall(r"device: cuda:\d+ n_gpu: 1,", log.text))
    nodes, each = log.count(r"--nnodes[ =](\d+)"), log.count(r"--nproc_per_node[ =](\d+)")
    # The command line has a GPU's samples per update, and the number of micro-batches in an update.
    accumulation = log.count(r"gradient_accumulation_steps[ =](\d+)")
    update, of_update = log.count(r"--train_batch_size[ =](\d+)"), log.count(r"--gradient_accumulation_steps[ =](\d+)")
    micro = log.count(r"batch_size_per_gpu : (\d+)")
    return ImportedRun(
        value=only(ends, "training_sequences_per_second"),
        unit="sequences/s",
        rule="the throughput that the program prints at its end: all sequences over the time since the first "
        "micro-batch, nothing dropped",
        model=prefixed(
            "bert-",
            log.find(r"bert_config_(\w+?)\.json", r"bert-(\w+)-uncased") or log.named(r"bert[_-]([a-z]+)"),
        ),
        precision=precision(log.find(r"\bamp=(True)") or half),
        batch_size_per_device=micro or (update and update // (of_update or 1)),
        gradient_accumulation=accumulation,
        devices=nodes * each if nodes and each else started or None,
        nodes=nodes,
        software=log.find(CONTAINER),
    )


def _pytorch_resnet(log: Log) -> ImportedRun:
    records = re.findall(TORCH_IMAGES, log.text)
    ascending([int(epoch) * 10**6 + int(iteration) for epoch, iteration, _ in records])
    summaries = log.numbers(TORCH_SUMMARY)
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
    return ImportedRun(
        value=value,
        unit="images/s",
        rule=rule,
        model=log.find(r"\barch : (\w+)"),
        precision=precision(log.find(r"\bamp : (\w+)")),
        batch_size_per_device=log.count(r"\bbatch_size : (\d+)"),
        devices=None if log.ranks else started or None,
        software=log.find(CONTAINER),
    )


def tensorflow(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of a program in TensorFlow 1."""
    if re.search(UPDATE, log.text):
        yield _tensorflow_bert(log)
    elif re.search(f"{IMAGES}|{OLDEST_END}", log.text):
        yield _tensorflow_resnet(log)


def _tensorflow_bert(log: Log) -> ImportedRun:
    updates = re.findall(UPDATE, log.text)
    ascending([step for step, *_ in updates])
    speeds, average = [number(speed) for _, speed, _ in updates], log.numbers(AVERAGE)
    if not average and not log.ranks:
        raise Unusable(
            "cut_off", f"it breaks off after update {updates[-1][0]}: the program prints its average at the end"
        )
    if updates[0][2] == "sequences/s":
        value, rule = mean(speeds), "the mean of throughput_train over all updates"
    elif average and log.before_2022:
        value = only(average, "the average throughput_train")
        rule = "the average throughput_train that the program prints at its end, without the updates that it skips"
    elif SKIPPED in log.text:
        dropped = len(re.findall(UPDATE, log.text[: log.text.rindex(SKIPPED)]))
        value = mean(after(speeds, dropped, "updates"))
        rule = "the mean of throughput_train over the updates after the last one that the program skips"
    else:
        value, rule = mean(after(speeds, 1, "updates")), "the mean of throughput_train over all updates after the first"
    half = log.find(r"^\+ precision=(\w+)", r"\bprecision=(\w+)") or log.named(r"(fp16|fp32|amp)")
    return ImportedRun(
        value=value,
        unit="sequences/s",
        rule=rule,
        model=prefixed("bert-", log.find(r"bert_model=(\w+)") or log.named(r"(base|large)")),
        precision=precision(half),
        gradient_accumulation=log.count(r"\bnum_accumulation_steps(?:_phase1)?[=:] ?(\d+)"),
        batch_size_per_device=log.count(r"\btrain_batch_size: (\d+)", r"\+ batch_size=(\d+)"),
        devices=log.count(r"\bnum_gpus=(\d+)") or (log.ranks if log.ranks > 1 else None),
        software=log.find(CONTAINER),
    )


def _tensorflow_resnet(log: Log) -> ImportedRun:
    lines = re.findall(IMAGES, log.text)
    ascending([step for step, _ in lines])
    ends, oldest = log.numbers(END), log.numbers(OLDEST_END)
    if oldest:
        value = only(oldest, "Average total_ips")
        rule = "Average total_ips, the average that the program prints at its end"
    elif not ends:
        raise Unusable("cut_off", f"it breaks off after iteration {lines[-1][0]}: the program's average is missing")
    elif log.ranks or log.before_2022:
        value, rule = only(ends, "train_throughput"), "train_throughput, the average that the program prints at its end"
    else:
        value = mean(after([number(speed) for _, speed in lines], DROPPED_LINES, "lines"))
        rule = (
            f"the mean of total_ips over all lines after the first {DROPPED_LINES}; 200 iterations of warm-up have none"
        )
    return ImportedRun(
        value=value,
        unit="images/s",
        rule=rule,
        model=log.find(r"\barch : (\w+)"),
        precision=precision(log.find(r"\bamp : (\w+)") or log.named(r"(amp|fp16|fp32)")),
        batch_size_per_device=log.count(r"Per-GPU Batch Size (\d+)", r"\bbatch_size : (\d+)"),
        devices=log.count(r"Num GPUs (\d+)"),
    )


def mxnet(log: Log) -> Iterator[ImportedRun]:
    """Yield the runs of a log of MXNet, which may have several."""
    if not re.search(r"DLL .*\btrain\.ips : ", log.text):
        return
    starts = [match.start() for match in re.finditer(MXNET_START, log.text)] or [0]
    for start, end in zip(starts, [*starts[1:], len(log.text)], strict=True):
        run = Log(log.name, log.text[start:end])
        epochs = run.numbers(MXNET_EPOCH)
        if not re.search(MXNET_END, run.text):
            raise Unusable("cut_off", f"a run breaks off after {len(epochs)} whole epochs: its summary is missing")
        gpus = run.find(r"\bgpus : \[([\d, ]+)\]")
        devices, total = len(gpus.split(",")) if gpus else None, run.count(r"\bbatch_size : (\d+)")
        yield ImportedRun(
            value=harmonic_mean(after(epochs, 1, "epochs")),
            unit="images/s",
            rule="the harmonic mean of the epochs' train.ips, without the first epoch",
            model=prefixed("resnet", run.find(r"\bnum_layers : (\d+)")),
            precision=precision(run.find(r"\bdtype : (\w+)")),
            batch_size_per_device=total // devices if total and devices else None,
            devices=devices,
        )


KINDS = {"NGC PyTorch": pytorch, "NGC TensorFlow": tensorflow, "NGC MXNet": mxnet}
