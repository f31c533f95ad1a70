"""Programs that train language models: Megatron-LM, DeepSpeed, nanoGPT and torchtitan.

* *Megatron-LM* prints a line every few iterations, with the mean time of the iterations since the last line. We drop
  the first line, because its time includes the start of all libraries. The figure is the global batch divided by the
  mean of the other lines' seconds.
* *DeepSpeed*: each line of its throughput timer has the running average. The timer drops the first two steps. The
  figure is the last running average. DeepSpeed prints Megatron's lines too when it trains Megatron's models; such a
  log is Megatron's.
* *nanoGPT*: train.py drops the first five iterations before it computes its own speed, and so do we. We also drop an
  iteration that evaluates (with a line `step ...` before it), because its time includes the evaluation. The figure is
  the tokens of an iteration divided by the mean time. bench.py prints the mean of 20 iterations after 10.
* *torchtitan* prints the tokens per second of one device: `tps` (formerly `wps`). Its published benchmarks read the
  line of step 90. The figure is this `tps`, times the devices of the mesh.
"""

import re
from collections.abc import Iterator
from math import prod

from throughline.comparables.logs.log import NUMBER, Log, Unusable, after, ascending, mean, number, precision, prefixed
from throughline.records import ImportedRun

MEGATRON = rf" iteration +(\d+)/ *\d+ \|.*?elapsed time per iteration \(ms\): {NUMBER}"
DEEPSPEED = rf"global_step=(\d+), RunningAvgSamplesPerSec={NUMBER}"
OLD_DEEPSPEED = rf"\b\d+/(\d+), SamplesPerSec={NUMBER}"
NANOGPT = (
    rf"(?m)(^step \d+: train loss .*\n(?:saving checkpoint .*\n)?)?^iter (\d+): loss \S+, time {NUMBER}ms(?:, mfu)?"
)
NANOGPT_BENCH = rf"time per iteration: {NUMBER}ms, MFU: "
NANOGPT_DROPPED = 5
TORCHTITAN = r"step: +(\d+) +loss: .*?memory: .*?(?:tps|wps): +([\d,]+)"
TORCHTITAN_STEP = 90


def megatron(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of Megatron-LM."""
    lines = re.findall(MEGATRON, log.text)
    if not lines:
        return
    ascending([step for step, _ in lines])
    seconds = mean(after([number(time) / 1000 for _, time in lines], 1, "lines"))

    def argument(name: str) -> int | None:
        """Return an argument that Megatron lists in this form: `  hidden_size .......... 1024`."""
        return log.count(rf"(?m)^\s*(?:\[.*\] )?{name} \.+ (\d+)")

    batch = log.count(r"global batch size: +(\d+)") or argument("global_batch_size")
    devices, micro = argument("world_size"), argument("(?:micro_)?batch_size")
    if batch is None and micro and devices:
        batch = micro * devices // (argument("(?:tensor_)?model_parallel_size") or 1)
    if batch is None:
        raise Unusable("broken", "it prints times alone, and no global batch size to turn them into a throughput")
    hidden, layers, half = argument("hidden_size"), argument("num_layers"), log.find(r"\bfp16 \.+ (\w+)")
    yield ImportedRun(
        framework="Megatron-LM with DeepSpeed" if "DeepSpeed" in log.text else "Megatron-LM",
        value=batch / seconds,
        unit="sequences/s",
        rule="the global batch over the mean time per iteration of all lines after the first",
        model=f"gpt-{hidden}x{layers}" if hidden and layers else None,
        precision=precision(half, log.find(r"\bbf16 \.+ (\w+)")) if half else None,
        batch_size_per_device=micro,
        devices=devices,
    )


def deepspeed(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of DeepSpeed."""
    lines = re.findall(DEEPSPEED, log.text) or re.findall(OLD_DEEPSPEED, log.text)
    if not lines or re.search(MEGATRON, log.text):
        return
    ascending([step for step, _ in lines])
    yield ImportedRun(
        value=number(lines[-1][1]),
        unit="samples/s",
        rule="the last running average of samples per second; DeepSpeed's timer drops the first two steps",
        precision=precision(log.find(r"\bfp16_enabled \.+ (\w+)"), log.find(r"\bbfloat16_enabled \.+ (\w+)")),
        batch_size_per_device=log.count(r"train_micro_batch_size_per_gpu \.+ (\d+)"),
        devices=log.count(r"\bworld_size \.+ (\d+)", r"\bworld_size=(\d+)"),
        software=prefixed("deepspeed ", log.find(r"DeepSpeed info: version=([\w.+]+)")),
    )


def nanogpt(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of nanoGPT's train.py or bench.py."""
    lines = re.findall(NANOGPT, log.text) if "\niter " in f"\n{log.text}" else []
    window = re.findall(NANOGPT_BENCH, log.text)
    if not (lines or window):
        return
    if window:
        times, time = [number(window[-1])], "the time per iteration that bench.py prints: the mean of 20 after 10"
    else:
        ascending([step for _, step, _ in lines])
        times = [number(time) for evaluates, step, time in lines if int(step) >= NANOGPT_DROPPED and not evaluates]
        time = f"the mean time of those from {NANOGPT_DROPPED} on that do not evaluate"
    if not times:
        raise Unusable("cut_off", f"it has no iteration from {NANOGPT_DROPPED} on that does not evaluate")
    tokens = (log.find(r"tokens per iteration will be: ([\d,]+)") or "").replace(",", "")
    batch, length = log.count(r"(?m)^batch_size = (\d+)"), log.count(r"(?m)^block_size = (\d+)")
    if not tokens and window and batch and length:
        tokens = str(batch * length)
    size, per = log.find(r"number of parameters: ([\d.]+M)"), "the tokens of an iteration" if tokens else "one"
    yield ImportedRun(
        value=number(tokens) / mean(times) * 1000 if tokens else 1000 / mean(times),
        unit="tokens/s" if tokens else "steps/s",
        rule=time if window and tokens else f"{per} over {time}",
        model=f"nanoGPT, {size} parameters" if size else None,
        precision={"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}.get(log.find(r"dtype = '(\w+)'") or ""),
        batch_size_per_device=batch,
        devices=log.count(r"(?:world_size|WORLD_SIZE)\W+(\d+)"),
    )


def torchtitan(log: Log) -> Iterator[ImportedRun]:
    """Yield the run of torchtitan, from the lines of its first rank if several ranks print."""
    first = [line for line in log.text.splitlines() if not (rank := re.match(r"\[rank(\d+)\]", line)) or rank[1] == "0"]
    lines = re.findall(TORCHTITAN, "\n".join(first))
    if not lines:
        return
    ascending([step for step, _ in lines])
    speed = dict(lines).get(str(TORCHTITAN_STEP))
    if speed is None:
        raise Unusable(
            "cut_off", f"the rule reads the line of step {TORCHTITAN_STEP}; its last is that of step {lines[-1][0]}"
        )
    mesh = re.search(r"Building \d+-D device mesh with .*?\[([\d, ]+)\]", log.text)
    devices = prod(int(size) for size in mesh[1].split(",")) if mesh else None
    size = re.search(r"Model (\S+) (\S+) size: ([\d,]+)", log.text)
    yield ImportedRun(
        value=number(speed) * (devices or 1),
        unit="tokens/s" if devices else "tokens/s/device",
        rule=f"tps of the line of step {TORCHTITAN_STEP}" + (", times the devices" if devices else ""),
        model=f"{size[1]} {size[2]}" if size else None,
        devices=devices,
        hardware=log.find(r"GPU capacity: (.+?) \(\d\) with"),
    )


KINDS = {"Megatron-LM": megatron, "DeepSpeed": deepspeed, "nanoGPT": nanogpt, "torchtitan": torchtitan}
