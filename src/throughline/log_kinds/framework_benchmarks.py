"""The benchmarks of PaddlePaddle, OneFlow and GluonNLP (MXNet), and the results of DLPerf and Paddle as JSON.

* *PaddlePaddle* (BERT of PaddleNLP, ResNet-50 of PaddleClas): the `ips` of a line is the speed of one card. For the
  oldest BERT runs on several nodes, whose program prints no Namespace, Paddle's own analysis drops only the first line.
  For runs of Paddle's current benchmark (BERT prints `total step`, or the file's name ends in `_N1C8_log`) it drops ten
  lines, and then the 5 slowest and the 5 fastest lines, or the slowest and fastest 5 percent if these are more.
* *OneFlow*, as DLPerf ran it. The lines of ResNet-50 and BERT end with the time of day. GPT prints a table.
* *GluonNLP*: DLPerf logs each of 200 steps on every rank, with its latency. DLPerf's own script computes the speed of
  each line from the latency (in ms, one decimal). For a log without latencies (`throughput=133.0K tks/s`), no published
  rule exists; we take the median.
* *DLPerf's result*, `bz32_result.json`, has a cell for each model and topology: {"bert": {"1n1g": {"average_speed":
  ..., "batch_size_per_device": ..., "median_speed": ..., "speedup": ...}}}. *Paddle's index* is a file with one line
  for each case, such as `nlp_bert_sp_bs32_fp32_1_speed`; `sp` means one card and `mp` several.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import mul
from statistics import fmean, median
from typing import Any

from throughline.log_kinds.kind import NUMBER, Fields, Kind, Log, Rule, Unusable, computed, form, listed, named, number
from throughline.spec import Topology

IPS = rf".*?\bips: (?P<per_s>{NUMBER}) (?:sequences|images|samples)/s"


def paddle_rule(log: Log, lines: list[re.Match[str]], facts: dict[str, Any]) -> Rule:
    """Return Paddle's rule by its model and by the age of its benchmark."""
    words, program = "the mean of ips over {}, times the number of cards", lines[0].groupdict().get("program")
    if program == "total" or log.named(r"(N\d+C\d+_log)"):
        out = max(5, (len(lines) - 10) // 20)

        def trimmed(speeds: Sequence[float]) -> float:
            if len(speeds) <= 2 * out:
                raise Unusable("cut_off", f"{len(speeds)} lines are too few: {out} fall out at either end")
            return fmean(sorted(speeds)[out:-out])

        kept = f"the lines after the first 10, without the {out} slowest and the {out} fastest"
        return Rule(words.format(kept), drop=10, average=trimmed)
    if not program:
        return Rule(words.format("the lines after the first 10"), drop=10)
    if (facts["devices"] or 0) > 8 and "Namespace(" not in log.text:
        return Rule(words.format("the lines after the first"), drop=1)
    return Rule(words.format("the lines after the first 100 steps"), first=101)


def waited(log: Log) -> int | None:
    """Return the ranks that the first rank waits for, and itself; 1 for a log without a launcher."""
    if ranks := log.find(r"not ready endpoints:\[([^\]]*)\]"):
        return 1 + len(ranks.split(","))
    return None if log.has(r"PADDLE_TRAINER|paddle\.distributed\.launch") else 1


PADDLE_BERT = Kind(
    title="PaddlePaddle",
    line=rf"(?P<program>tobal|total|global) step: (?P<step>\d+),{IPS}",
    rate_of="device",
    unit="sequences/s",
    rule=paddle_rule,
    model={"bert-base": "bert-base-uncased", "bert-large": "bert-large-uncased"},
    precision=(
        r"\buse_amp(?:=|', ')(\w+)",
        {"fp16": r"INFO: +AMP :|use_pure_fp16[=:] ?True", "fp32": "ppcls"},
        named(r"(fp16|fp32|amp)"),
    ),
    batch_size_per_device=(
        r"Namespace\(.*\bbatch_size=(\d+)",
        r"(?:'--batch_size', '|sampler\.batch_size=|avg_samples: )(\d+)",
        r"(?s)\bTrain : .{0,2500}?\bbatch_size : (\d+)",
    ),
    devices=(r"PADDLE_TRAINERS_NUM +(\d+)", named(r"gpu(\d+)"), named(r"N1C(\d+)"), waited),
    hardware=form("GPU of compute capability {}", r"GPU Compute Capability: ([\d.]+)"),
    software=form("CUDA runtime {}", r"Runtime API Version: ([\d.]+)"),
)
PADDLE_RESNET = replace(
    PADDLE_BERT,
    line=rf"epoch:(?P<epoch>\d+) +train step:(?P<step>\d+){IPS}",
    unit="images/s",
    model=lambda log: (log.find(r"(?s)Arch : .{0,200}?\bname : (\w+)") or "").lower() or None,
)


ONEFLOW_NODES = r"\bnum_nodes(?: \.+| =) (\d+)"
ONEFLOW_RESNET = Kind(
    title="OneFlow",
    line=r"train: epoch \d+, iter (?P<step>\d+), .*samples/s: [\d.]+ (?P<clock>\d{9,}\.\d+)",
    unit="images/s",
    rule=Rule("samples over seconds between the lines of iterations 20 and 120", at=(20, 120)),
    model=r"\bmodel = (\w+)",
    precision=(r"\b(?:use_fp16|fp16|use_auto_mixed_precision)(?: \.+| =) (\w+)", named(r"(fp16|fp32)")),
    batch_size_per_device=r"\b(?:(?:train_)?batch_size_per_device|micro_batch_size)(?: \.+| =) (\d+)",
    devices=computed(mul, ONEFLOW_NODES, r"\b(?:gpu_num|num_gpus|device_num)_per_node(?: \.+| =) (\d+)"),
    nodes=ONEFLOW_NODES,
)
ONEFLOW_BERT = replace(
    ONEFLOW_RESNET,
    line=r"step: (?P<step>\d+), total_loss: .*throughput: [\d.]+ (?P<clock>\d{9,}\.\d+)",
    unit="sequences/s",
    rule=Rule("samples over seconds between the lines of iterations 19 and 119", at=(19, 119)),
    model={"bert-base": r"num_hidden_layers = 12\b", "bert-large": r"num_hidden_layers = 24\b"},
)
ONEFLOW_FACES = replace(
    ONEFLOW_RESNET,
    line=rf"train: iter (?P<step>\d+), loss.*throughput: (?P<per_s>{NUMBER})",
    unit="samples/s",
    rule=Rule("the mean of the throughput of lines 20 to 120 after iteration 5", first=6, drop=19, until=120),
    model=r"network = (\w+)",
)
ONEFLOW_GPT = replace(
    ONEFLOW_RESNET,
    line=rf"\| (?P<step>\d+) +\| \d+ +\| \d+ +\| (?P<per_s>{NUMBER}) +\| {NUMBER} +\| \S+ +\|",
    unit="sequences/s",
    rule=Rule("the mean of the throughput of all rows after the first", drop=1),
    model=form("gpt-{}x{}", r"hidden_size \.+ (\d+)", r"num_layers \.+ (\d+)"),
)


def over_ranks(log: Log, lines: list[re.Match[str]], facts: dict[str, Any]) -> Rule:
    """Return DLPerf's rule, for lines of all ranks."""
    ranks = facts["devices"]
    if len(lines) % ranks:
        raise Unusable("cut_off", f"{len(lines)} lines are no whole steps of {ranks} ranks")

    def average(seconds: Sequence[float]) -> float:
        speeds = [1 / time for time in seconds]
        return 1 / fmean(median(speeds[start : start + ranks]) for start in range(0, len(speeds), ranks))

    words = "DLPerf's: the median over the ranks, then the mean of the steps after the first 100"
    return Rule(words, drop=100 * ranks, average=average)


GLUONNLP_WITH_LATENCY = Kind(
    title="GluonNLP",
    step=rf"\[step (?P<step>\d+)\]\tmlm_loss=(?P<loss>\S+)\t.*?latency=(?P<ms>{NUMBER}) ?ms/batch",
    line=rf"\[step \d+\].*?throughput=.*?latency=(?P<ms>{NUMBER}) ?ms/batch",  # the ranks' steps are not in order
    unit="sequences/s",
    rule=over_ranks,
    framework={"MXNet (GluonNLP)": "throughput="},
    model=(
        {"bert-base": r"\bmodel='bert_12_768_12_", "bert-large": r"\bmodel='bert_24_1024_16_"},
        form("bert {}", r"\bmodel='bert_(\d+_\d+_\d+)_\w+'"),
    ),
    precision=(r"\bdtype='(\w+)'", named(r"(fp16|fp32)")),
    batch_size_per_device=(named(r"_b(\d+)_\w+_\d+\.log$"), r"\bbatch_size=(\d+)"),
    devices=lambda log: log.text.count(log.find(r"(\[step \d+\])") or "[step"),
    software=form("mxnet at {}", r"(?m)^mxnet == ([0-9a-f]{12})[0-9a-f]{28}"),
)
GLUONNLP = replace(
    GLUONNLP_WITH_LATENCY,
    line=rf"\[step (?P<step>\d+)\].*?throughput=(?P<per_s>{NUMBER})K tks/s",
    unit="tokens/s",
    rule=Rule(
        "the median of the throughput over all lines after the first 10",
        drop=10,
        average=lambda thousands: 1000 * median(thousands),
    ),
    batch_size_per_device=r"\bbatch_size=(\d+)",
    devices=listed(r"\bgpus='([\d,]+)'"),
)

CASE = r"(?:[a-z]+_)?(?P<model>[\w-]+?)_(?:sp|mp)_bs(?P<batch>\d+)_(?P<precision>[tbf][fp](?:32|16|8))_\d+_speed"


def dlperf(log: Log) -> Iterator[Fields]:
    """Yield the cells of a DLPerf result."""
    if not re.match(r'\s*\{[\s\S]*"median_speed"', log.raw):
        return
    for model, cells in json.loads(log.raw).items():
        for name, cell in cells.items():
            if not (re.fullmatch(r"[1-9]\d*n[1-9]\d*g", name) and "median_speed" in cell):
                raise Unusable("broken", f"{model}, {name} is no cell of a topology with median_speed")
            topology = Topology.parse(name)
            yield Fields(
                framework=log.named(r"([a-z]+(?:-[a-z]+)*)_bz\d+") or "DLPerf",
                value=number(str(cell["median_speed"])),
                unit="samples/s",
                rule="DLPerf's median_speed: the median of its repeats",
                model=model,
                precision=log.named(r"(fp32|tf32|bf16|fp16|fp8)"),
                batch_size_per_device=cell.get("batch_size_per_device"),
                devices=topology.world,
                nodes=topology.nodes,
            )


def paddle_index(log: Log) -> Iterator[Fields]:
    """Yield the case of a Paddle index."""
    if not re.match(r'\s*\{[\s\S]*"FINAL_RESULT"', log.raw):
        return
    index = json.loads(log.raw)
    if index.get("JOB_FAIL_FLAG"):
        raise Unusable("cut_off", "JOB_FAIL_FLAG says that the case failed")
    case = re.search(CASE, str(index.get("log_file") or "")) or re.search(CASE, log.name)
    unit = str(index.get("UNIT") or "samples/s").replace("/sec", "/s")
    yield Fields(
        value=number(str(index["FINAL_RESULT"])),
        unit=unit if re.fullmatch(r"[\w.]+/s", unit) else "samples/s",
        rule="FINAL_RESULT: the mean of its run after the steps that its script skips",
        model=case["model"] if case else str(index["model_name"]),
        precision=case["precision"] if case else None,
        batch_size_per_device=int(case["batch"]) if case else None,
        devices=index["gpu_num"] or None,
    )


DLPERF = Kind(title="DLPerf's result", reader=dlperf)
PADDLE_INDEX = Kind(title="Paddle's index", reader=paddle_index)
