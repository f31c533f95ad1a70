"""Programs that train language models, beside those in training_programs.py.

* *MaxText* starts a step before the one before has ended. So its first lines have the time of compilation, or almost no
  time at all; its own benchmarks take the median of later steps. Older versions do not print tokens.
* *NeMo* prints the time of each step. Its performance guide reads a step after the warm-up. We drop the first line
  only, whose time includes the start.
* *Lightning* prints the mean rate since the start of an epoch (its bar does not smooth). We take that of the last line.
* *nanochat*'s base_train.py counts no time before step 11, and so do we, also for the lines of build-nanogpt.
* *modded-nanogpt* prints the mean time of steps, without evaluations: of all steps, in older versions without the first
  10, and in some variants of those since the line before. We take that of the last line.
* *llm.c* leaves the first step out of the average that it prints at its end.
"""

from dataclasses import replace
from operator import floordiv
from statistics import harmonic_mean, median

from throughline.log_kinds.kind import NUMBER, Kind, Rule, computed

MAXTEXT_STEP = rf"completed step: (?P<step>\d+), seconds: {NUMBER}, TFLOP/s/device: \S+, "
MAXTEXT = Kind(
    title="MaxText",
    step=MAXTEXT_STEP + rf"Tokens/s/device: (?P<per_s>{NUMBER})(?:.*?, loss: (?P<loss>{NUMBER}))?",
    rate_of="device",
    unit="tokens/s",
    rule=Rule(
        "the median of Tokens/s/device over all lines after the first 5, times the devices", drop=5, average=median
    ),
    model=r"Config param model_name: (\S+)",
    precision=r"Config param (?:quantization: (fp8)|dtype: (\w+))",
    batch_size_per_device=r"Config param per_device_batch_size: (\d+)(?:\.0)?\b",
    gradient_accumulation=r"Config param gradient_accumulation_steps: (\d+)",
    devices=r"Num devices: (\d+)",
)
MAXTEXT_OLD = replace(
    MAXTEXT,
    step="",
    line=rf"completed step: (?P<step>\d+), seconds: (?P<s>{NUMBER}), TFLOP/s",
    unit="samples/s",
    rule=Rule("the samples of a step over the median time of all lines after the first 5", drop=5, average=median),
    or_steps=True,
)
NEMO = Kind(
    title="NeMo",
    step=r"Training epoch \d+, iteration .*? global_batch_size: (?P<samples>\d+) \| global_step: (?P<step>\d+) \|"
    rf"(?:.*? reduced_train_loss: (?P<loss>{NUMBER}))?.*? train_step_timing in s: (?P<s>{NUMBER})",
    unit="sequences/s",
    rule=Rule("the global batch over the mean of train_step_timing of all lines after the first", drop=1),
    or_steps=True,
    precision=r"\bprecision[=:] ?['\"]?((?:bf)?(?:16|32)-\w+)",
    batch_size_per_device=r"\bmicro_batch_size[=:] ?(\d+)",
    devices=r"Starting with (\d+) processes",
)
NEMO_BAR = replace(
    NEMO,
    step="",
    line=rf"global_step=(?P<step>\d+)\.0\b.*?train_step_timing in s=(?P<s>{NUMBER})",
    per_step=r"\bglobal_batch_size[=:] ?(\d+)",
)
LIGHTNING = Kind(
    title="Lightning",
    line=rf"Epoch (?P<epoch>\d+)(?::|/\d+ ).*?\b(?P<step>[1-9]\d*)/\d+ .*?\b(?!0\.00it)(?P<per_s>{NUMBER})it/s",
    unless=r"train_step_timing in s",
    unit="steps/s",
    rule=Rule(
        "the rate of the last line: the mean since the start of its epoch, nothing dropped",
        average=lambda rates: rates[-1],
    ),
    devices=NEMO.devices,
)
NANOCHAT_RANK = r"Tokens / micro-batch / rank: (?:\d+ x \d+ = )?([\d,]+)"
NANOCHAT = Kind(
    title="nanochat",
    step=rf"step +(?P<step>\d+)(?:/\d+)?(?: \([\d.]+%\))? \| loss: (?P<loss>{NUMBER}) \|.*?"
    r"\bdt: [\d.]+ms \| tok/sec: (?P<per_s>[\d,.]+)",
    unit="tokens/s",
    rule=Rule("the harmonic mean of tok/sec over all lines from step 11 on", first=11, average=harmonic_mean),
    batch_size_per_device=r"Tokens / micro-batch / rank: (\d+) x",
    gradient_accumulation=r"gradient accumulation steps: (\d+)",
    devices=computed(floordiv, r"Tokens / micro-batch: ([\d,]+)", NANOCHAT_RANK),
)
MODDED_NANOGPT = Kind(
    title="modded-nanogpt",
    line=rf"step:(?P<step>\d+)/\d+ .*?train_time:[\d.]+m?s step_avg:(?!0\.00ms)(?P<ms>{NUMBER})ms",
    unit="tokens/s",
    rule=Rule(
        "the tokens of a step over step_avg of the last line, a mean without evaluations",
        average=lambda means: means[-1],
    ),
    or_steps=True,
    devices=r"(?m)\bworld_size[=:] ?(\d+)$",
)
LLM_C = Kind(
    title="llm.c",
    step=rf"step +(?P<step>\d+)/ *\d+ \| (?:train )?loss (?P<loss>{NUMBER}).*?\| \(?(?P<ms>{NUMBER}) ms \|",
    unit="tokens/s",
    rule=Rule("the tokens of a step over the mean time of all steps after the first", drop=1),
    per_step=r"\btotal_batch_size=(\d+)",
    or_steps=True,
    precision=r"\| precision +\| (\w+)",
    batch_size_per_device=r"\bbatch_size B=(\d+)",
    devices=(r"\| num_processes +\| (\d+)", r"\bnum_processes=(\d+)"),
    hardware=r"\| device +\| (.+?) +\|",
)
