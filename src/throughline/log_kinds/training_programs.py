"""Programs and libraries that train models.

* *Megatron-LM* prints a line every few iterations, with the mean time of the iterations since the last line. We drop
  the first line, because its time includes the start of all libraries. Each line has its global batch, which may grow.
* *DeepSpeed*: each line of its throughput timer has the running average and the throughput of the last step, both of
  all devices. DeepSpeed prints Megatron's lines too when it trains Megatron's models; such a log is Megatron's.
* *nanoGPT*: train.py drops the first five iterations before it computes its own speed, and so do we. We also drop an
  iteration that evaluates (with a line `step ...` before it), because its time includes the evaluation.
* *torchtitan* prints the tokens per second of one device since its last line: `tps` (formerly `wps`). Its published
  benchmarks read the line of step 90. If a run has no such line, all lines after the first count.
* *LitGPT* prints the time of a micro-batch, in which the GPU may still compute earlier ones. So an import reads the
  end: after `litgpt pretrain` the tokens of all devices and the time (its `Tok/sec` is divided by a time of day), after
  `litgpt finetune` the tokens per second of one process.
* *Hugging Face's Trainer* prints its log as dictionaries and writes it to trainer_state.json. Its runtime includes the
  evaluations, the logging and the first steps. A job that was resumed divides the samples of all steps by the runtime
  since then, so we take the steps since then only. A state has an end for each job; the last one counts.
* *Keras* prints the mean time of an epoch's steps, in whole milliseconds. It leaves out the first step, and counts the
  validation at the end of the epoch. It has no published rule, and we drop nothing.
"""

import re
from dataclasses import replace
from math import prod
from operator import floordiv, mul
from statistics import harmonic_mean
from typing import Any

from throughline.log_kinds.kind import NUMBER, Kind, Lines, Log, Rule, Unusable, computed, form

# Megatron lists an argument in this form: `  hidden_size .......... 1024`.
ARGUMENT = r"(?m)^\s*(?:\[.*\] )?{} \.+ (\d+)"
FP8 = r"\bfp8(?:_\w+)? \.+ (?:True|hybrid|e4m3|e5m2)"
WORLD, MICRO = ARGUMENT.format("world_size"), ARGUMENT.format("(?:micro_)?batch_size")
MEGATRON = Kind(
    title="Megatron-LM",
    step=rf"(?m)(?:^| )iteration +(?P<step>\d+)/ *\d+ \|.*?elapsed time per iteration \(ms\): (?P<ms>{NUMBER})"
    rf"(?:.*? global batch size: +(?P<samples>\d+))?(?:.*? lm loss: (?P<loss>{NUMBER}))?",
    unit="sequences/s",
    rule=Rule("the global batch over the mean time per iteration of all lines after the first", drop=1),
    per_step=(
        r"global batch size: +(\d+)",
        ARGUMENT.format("global_batch_size"),
        computed(floordiv, computed(mul, MICRO, WORLD), ARGUMENT.format("(?:tensor_)?model_parallel_size")),
    ),
    framework={"Megatron-LM with DeepSpeed": "DeepSpeed"},
    model=form("gpt-{}x{}", ARGUMENT.format("hidden_size"), ARGUMENT.format("num_layers")),
    precision={
        "fp4": r"\bfp4 \.+ e2m1",
        "fp8": FP8,
        "bf16": r"\bbf16 \.+ True",
        "fp16": r"\bfp16 \.+ True",
        "fp32": r"\bfp16 \.+ \w+",
    },
    batch_size_per_device=MICRO,
    devices=WORLD,
)
DEEPSPEED = Kind(
    title="DeepSpeed",
    step=rf"global_step=(?P<step>\d+), RunningAvgSamplesPerSec={NUMBER}, CurrSamplesPerSec=(?P<per_s>{NUMBER})",
    line=rf"(?:global_step=|\b\d+/)(?P<step>\d+), (?:RunningAvg)?SamplesPerSec=(?P<per_s>{NUMBER})",
    unless=MEGATRON.step,
    unit="samples/s",
    rule=Rule(
        "the last running average of samples per second; DeepSpeed's timer drops the first two steps",
        average=lambda averages: averages[-1],
    ),
    precision={
        "bf16": r"\bbfloat16_enabled \.+ True",
        "fp16": r"\bfp16_enabled \.+ True",
        "fp32": r"\b(?:fp|bfloat)16_enabled \.+ \w+",
    },
    batch_size_per_device=r"train_micro_batch_size_per_gpu \.+ (\d+)",
    devices=r"\bworld_size(?: \.+ |=)(\d+)",
    software=form("deepspeed {}", r"DeepSpeed info: version=([\w.+]+)"),
)
NANOGPT_BATCH = r"(?m)^batch_size = (\d+)"
NANOGPT = Kind(
    title="nanoGPT",
    step=rf"(?m)^iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<ms>{NUMBER})ms",
    line=r"(?m)(?P<dropped>^step \d+: train loss .*\n(?:saving checkpoint .*\n)?)?"
    rf"^iter (?P<step>\d+): loss \S+, time (?P<ms>{NUMBER})ms",
    unit="tokens/s",
    rule=Rule("the tokens of an iteration over the mean time of those from 5 on that do not evaluate", first=5),
    per_step=r"tokens per iteration will be: ([\d,]+)",
    or_steps=True,
    model=form("nanoGPT, {} parameters", r"number of parameters: ([\d.]+M)"),
    precision=r"dtype = '(\w+)'",
    batch_size_per_device=NANOGPT_BATCH,
    devices=r"(?:world_size|WORLD_SIZE)\W+(\d+)",
)
NANOGPT_BENCH = replace(
    NANOGPT,
    step="",
    line=rf"time per iteration: (?P<ms>{NUMBER})ms, MFU: ",
    rule=Rule("the tokens of an iteration over the time per iteration that bench.py prints: the mean of 20 after 10"),
    per_step=computed(mul, NANOGPT_BATCH, r"(?m)^block_size = (\d+)"),
)
OLD_MESH = r"Building \d+-D device mesh with .*?\[([\d, ]+)\]"
NEW_MESH = r"Building device mesh with parallelism: (.+)"


def titan_devices(log: Log) -> int:
    """Return the product of the mesh. Experts (`ep`, `etp`) share the devices of the other dimensions."""
    sizes = re.findall(r"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d+)", log.find(NEW_MESH) or "")
    return prod(map(int, sizes or (log.find(OLD_MESH) or "0").split(",")))


def titan_rule(log: Log, lines: Lines, facts: dict[str, Any]) -> Rule:
    """Return the rule of the published benchmarks, or another for a run that does not print step 90."""
    steps = [int(line["step"]) for line in lines]
    if 90 in steps or (steps[-1] < 90 and not log.has("Training completed")):
        return Rule("tps of the line of step 90, times the devices", at=(90,))
    words = "the harmonic mean of tps over all lines after the first (no line is of step 90), times the devices"
    return Rule(words, drop=1, average=harmonic_mean)


TORCHTITAN = Kind(
    title="torchtitan",
    # Only the lines of the first rank, if several ranks print.
    step=r"(?m)^(?!\[rank[1-9]).*(?<!validate )step: +(?P<step>\d+) +loss: +(?P<loss>\S+) .*?memory: "
    r".*?(?:tps|wps): +(?P<per_s>[\d,]+)",
    rate_of="device",
    unit="tokens/s",
    rule=titan_rule,
    model=r"Model (\S+ \S+) size: [\d,]+",
    precision={"fp8": r"(?i)\b(?:mx)?(?:float|fp)8\b.*training active|swapped to float8linear"},
    devices=titan_devices,
    hardware=r"[A-Z]+ capacity: (.+?)(?: \(\d+\))? with",
)
LITGPT_STEP = (
    rf"Epoch \d+ \| iter (?P<step>\d+) step \d+ \| loss train: (?P<loss>{NUMBER}), val: \S+ \|"
    rf" iter time: (?P<ms>{NUMBER}) ms(?: \(step\))?"
)
LITGPT = Kind(
    title="LitGPT",
    step=LITGPT_STEP,
    line=LITGPT_STEP + " remaining time: ",  # `litgpt pretrain` alone prints it
    end=rf"Total tokens +: (?P<amount>[\d,]+)\n.*Training Time +: (?P<s>{NUMBER}) s",
    unit="tokens/s",
    rule=Rule("all tokens over the training time, as the program prints them at its end, nothing dropped", at_end=True),
    model=(r"'model_name': '([^']+)'", r"'checkpoint_dir': PosixPath\('(?:[^']*/)?([\w.-]+/[\w.-]+)'\)"),
    precision=r"'precision': '([\w-]+)'",
    batch_size_per_device=r"\bmicro_batch_size=(\d+)",
    devices=computed(mul, r"'devices': (\d+)", r"'num_nodes': (\d+)"),
    nodes=r"'num_nodes': (\d+)",
)
LITGPT_FINETUNE = replace(
    LITGPT,
    step="",
    line=LITGPT_STEP + r"\n",
    end=rf"Tok/sec +: +(?P<per_s>{NUMBER}) tok/s",
    rate_of="device",
    rule=Rule("Tok/sec of a process with its padding, as it prints it at its end, times the devices", at_end=True),
)


def since_resumed(log: Log, lines: Lines, facts: dict[str, Any]) -> Rule:
    """Return the rule of the program, for the steps of its last job alone."""
    ends = re.findall(r'"step": (\d+),[^{}]*?"train_samples_per_second"', log.text)
    before = log.find(r"Continuing training from global step (\d+)") or (ends[-2] if len(ends) > 1 else "0")
    last = log.find(r"Total optimization steps = ([\d,]+)") or (ends[-1] if ends else "1")
    share = 1 - int(before) / int(last.replace(",", ""))
    if not 0 < share <= 1:
        raise Unusable("mixed", f"it was resumed at step {before}, and does not say how many steps followed")
    job, average = (
        ("the whole job", None) if share == 1 else ("the last job, of its own steps", lambda e: share * e[-1])
    )
    words = f"train_samples_per_second: all samples over the runtime of {job}, nothing dropped"
    return Rule(words, at_end=True, average=average)


TRAINER = Kind(
    title="Hugging Face Trainer",
    line=r"""\{'loss': .*'learning_rate': |"log_history": """,
    end=rf"""\btrain_samples_per_second(?:['"]: '?| += +)(?P<per_s>{NUMBER})""",
    unless=DEEPSPEED.line,
    unit="samples/s",
    rule=since_resumed,
    model=r'"(?:model_name|_name_or_path)": "([^"]+)"',
    batch_size_per_device=r'"train_batch_size": (\d+)',
)
KERAS = Kind(
    title="Keras",
    line=r"(?m)^Epoch (?P<step>\d+)/\d+\s*$(?:(?!^Epoch )[\s\S])*?\b(?P<of>\d+)/(?P=of) "
    r".*?\b(?:(?P<us>\d+)us|(?P<ms>\d+)ms|(?P<s>\d+)s)/step",
    unit="samples/s",
    rule=Rule("the samples of a step over the mean of the epochs' times per step"),
    or_steps=True,
)
