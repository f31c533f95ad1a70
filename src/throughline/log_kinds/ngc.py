"""NVIDIA's DeepLearningExamples: BERT and ResNet-50 in PyTorch and TensorFlow 1, ResNet-50 in MXNet.

All print DLLogger's lines. The rules are those of PaddlePaddle's published comparison. It changed the rules in 2022 for
runs on one node. Only its published logs show this change; its text does not mention it.

* *TensorFlow, BERT*: the program leaves out ("Skipping time record ...") the warm-up and five updates after each
  checkpoint. Newer programs print `sequences/s`.
* *TensorFlow, ResNet-50* prints every tenth iteration after 200 iterations of warm-up.
* *MXNet, ResNet-50*: the harmonic mean of the epochs is all images divided by all seconds. A file may have several
  runs, one for each number of GPUs. Each begins with its parameters.
"""

import re
from dataclasses import replace
from operator import floordiv, mul
from statistics import harmonic_mean
from typing import Any

from throughline.log_kinds.kind import Kind, Lines, Log, Rule, Unusable, computed, form, listed, named, number, only

CONTAINER = r"(Container nvidia build = +\d+)"
AVERAGE = r"DLL [\d-]+ [\d:.]+ - +throughput_train : ([\d.]+)"
SKIPPED = "Skipping time record for"
SEVERAL, LAUNCHED = "distributed : True", r"(?m)^\['[^']*python[\d.]*', "


def before_2022(log: Log) -> bool:
    """Return whether the lines of DLLogger are from 2021 or earlier."""
    return (log.find(r"DLL (\d{4})-") or "9999") < "2022"


PYTORCH_BERT = Kind(
    title="NGC PyTorch",
    step=r"DLL \S+ (?P<clock>[\d:.]+) - Training Epoch: \d+ Training Iteration: (?P<step>\d+) +average_loss : \S+ +"
    r"step_loss : (?P<loss>\S+)",
    line=r"DLL .*Training Epoch: \d+ Training Iteration: \d+",  # no group `step`, because several nodes print them
    end=r"training_sequences_per_second : (?P<per_s>[\d.]+)",
    unit="sequences/s",
    rule=Rule(
        "the throughput that the program prints at its end: all sequences over the time since the first micro-batch, "
        "nothing dropped",
        at_end=True,
    ),
    model=form("bert-{}", (r"bert_config_(\w+?)\.json", r"bert-(\w+)-uncased", named(r"bert[_-]([a-z]+)"))),
    precision=(r"\bamp=(True)", r"\bfp16=(\w+)", r"16-bits training: (\w+)", named(r"_(fp16|fp32|amp)")),
    # The command line has a GPU's samples per update, and the number of micro-batches in an update.
    batch_size_per_device=(
        r"batch_size_per_gpu : (\d+)",
        computed(floordiv, r"--train_batch_size[ =](\d+)", r"--gradient_accumulation_steps[ =](\d+)"),
        r"--train_batch_size[ =](\d+)",
    ),
    gradient_accumulation=r"gradient_accumulation_steps[ =](\d+)",
    devices=(
        computed(mul, r"--nnodes[ =](\d+)", r"--nproc_per_node[ =](\d+)"),
        lambda log: len(re.findall(r"device: cuda:\d+ n_gpu: 1,", log.text)),
    ),
    nodes=r"--nnodes[ =](\d+)",
    software=CONTAINER,
)


def pytorch_resnet(log: Log, lines: Lines, facts: dict[str, Any]) -> Rule:
    """Return the program's summary before 2022 and for runs of mpirun, and else the mean of the lines."""
    if log.ranks or before_2022(log):
        return Rule("the mean of train.total_ips over all iterations, as the program's summary prints it", at_end=True)
    dropped = 8 if log.has(SEVERAL) else 9
    return Rule(f"the mean of train.total_ips over all iterations after the first {dropped}", dropped)


PYTORCH_RESNET = Kind(
    title="NGC PyTorch",
    line=r"DLL .*Epoch: (?P<epoch>\d+) Iteration: (?P<step>\d+) .*train\.total_ips : (?P<per_s>[\d.]+)",
    end=r"DLL .*Summary: .*train\.total_ips : (?P<per_s>[\d.]+)",
    unit="images/s",
    rule=pytorch_resnet,
    model=r"\barch : (\w+)",
    precision=r"\bamp : (\w+)",
    batch_size_per_device=r"\bbatch_size : (\d+)",
    devices=lambda log: None if log.ranks else len(re.findall(LAUNCHED, log.text)) if log.has(SEVERAL) else 1,
    software=CONTAINER,
)


def tensorflow_bert(log: Log, lines: Lines, facts: dict[str, Any]) -> Rule:
    """Return the program's average before 2022, and since then the mean of the updates after the skipped ones."""
    averages = [number(text) for text in re.findall(AVERAGE, log.text)]
    if not averages and not log.ranks:
        raise Unusable("cut_off", f"it breaks off after {len(lines)} updates: the average at its end is missing")
    if lines[0]["unit"] == "sequences/s":
        return Rule("the mean of throughput_train over all updates")
    if averages and before_2022(log):
        words = "the average throughput_train that the program prints at its end, without the updates that it skips"
        return Rule(words, average=lambda _: only(averages))
    if SKIPPED in log.text:
        words = "the mean of throughput_train over the updates after the last one that the program skips"
        return Rule(words, drop=sum(line.end() <= log.text.rindex(SKIPPED) for line in lines))
    return Rule("the mean of throughput_train over all updates after the first", drop=1)


TENSORFLOW_BERT = Kind(
    title="NGC TensorFlow",
    line=r"DLL .*Iteration: (?P<step>\d+) +throughput_train : (?P<per_s>[\d.]+) (?P<unit>\w+/s)",
    unit="sequences/s",
    rule=tensorflow_bert,
    model=form("bert-{}", (r"bert_model=(\w+)", named(r"(base|large)"))),
    precision=(r"^\+ precision=(\w+)", r"\bprecision=(\w+)", named(r"(fp16|fp32|amp)")),
    batch_size_per_device=(r"\btrain_batch_size: (\d+)", r"\+ batch_size=(\d+)"),
    gradient_accumulation=r"\bnum_accumulation_steps(?:_phase1)?[=:] ?(\d+)",
    devices=(r"\bnum_gpus=(\d+)", lambda log: log.ranks if log.ranks > 1 else None),
    software=CONTAINER,
)
TENSORFLOW_RESNET_2019 = Kind(
    title="NGC TensorFlow",
    end=r":::NVLOG.* Average total_ips: (?P<per_s>[\d.]+)",
    unit="images/s",
    rule=Rule("Average total_ips, the average that the program prints at its end", at_end=True),
    model=r"\barch : (\w+)",
    precision=(r"\bamp : (\w+)", named(r"(amp|fp16|fp32)")),
    batch_size_per_device=(r"Per-GPU Batch Size (\d+)", r"\bbatch_size : (\d+)"),
    devices=r"Num GPUs (\d+)",
)
TENSORFLOW_RESNET = replace(
    TENSORFLOW_RESNET_2019,
    line=r"DLL .*\(\d+, (?P<step>\d+)\) .*total_ips : (?P<per_s>[\d.]+)",
    end=r"DLL .*\(\) +train_throughput : (?P<per_s>[\d.]+)",
    rule=lambda log, *_: (
        Rule("train_throughput, the average that the program prints at its end", at_end=True)
        if log.ranks or before_2022(log)
        else Rule("the mean of total_ips over all lines after the first 5; 200 iterations of warm-up have none", drop=5)
    ),
)
MXNET_RESNET = Kind(
    title="NGC MXNet",
    first_line=r"DLL [\d-]+ [\d:.]+ - PARAMETER arch : resnet",
    line=r"DLL .*Epoch: (?P<step>\d+) +train\.loss : \S+ +train\.ips : (?P<per_s>[\d.]+)",
    end=r"DLL .*Summary: .*train\.ips : (?P<per_s>[\d.]+)",
    unit="images/s",
    rule=Rule("the harmonic mean of the epochs' train.ips, without the first epoch", drop=1, average=harmonic_mean),
    model=form("resnet{}", r"\bnum_layers : (\d+)"),
    precision=r"\bdtype : (\w+)",
    batch_size_per_device=computed(floordiv, r"\bbatch_size : (\d+)", listed(r"\bgpus : \[([\d, ]+)\]")),
    devices=listed(r"\bgpus : \[([\d, ]+)\]"),
)
