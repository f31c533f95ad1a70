"""PaddlePaddle: BERT of PaddleNLP and ResNet-50 of PaddleClas. Both print a line every few steps.

The `ips` of a line is the speed of one card. Paddle's own analysis drops the first lines, takes the mean of the others,
and multiplies it by the number of cards. For BERT it drops 100 steps. For the oldest runs on several nodes, whose
program prints no Namespace, it drops only the first line. For ResNet-50 it drops ten lines. For runs of Paddle's
current benchmark (BERT prints `total step`, or the file's name ends in `_N1C8_log`) it drops ten lines, and then the 5
slowest and the 5 fastest lines, or the slowest and fastest 5 percent if these are more.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import NUMBER, after, ascending, mean, number, precision, prefixed
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "PaddlePaddle"
STEP = r"(?:(tobal|total|global) step: (\d+),|epoch:(\d+) +train step:(\d+))"
LINE = rf"{STEP}.*?\bips: {NUMBER} (sequences|images|samples)/s"
PRESENT = r"(N\d+C\d+_log)"
BATCH = (
    r"Namespace\(.*\bbatch_size=(\d+)",
    r"'--batch_size', '(\d+)'",
    r"sampler\.batch_size=(\d+)",
    r"avg_samples: (\d+)",
    r"(?s)\bTrain : .{0,2500}?\bbatch_size : (\d+)",
)
PER_NODE = 8
DROPPED_STEPS, DROPPED_LINES, ENDS, END_SHARE = 100, 10, 5, 0.05


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log; none if the log is of another kind."""
    lines = re.findall(LINE, log.text)
    if not lines:
        return
    steps = [int(step) if step else int(epoch) * 10**6 + int(within) for _, step, epoch, within, *_ in lines]
    ascending(steps)
    speeds = [number(speed) for *_, speed, _ in lines]
    devices = _devices(log)
    if devices is None:
        raise Unusable(
            "broken", "its figures are of one card, and neither the log nor its name says how many there were"
        )
    bert = not lines[0][2]
    if lines[0][0] == "total" or log.named(PRESENT):
        kept, rule = _trimmed(after(speeds, DROPPED_LINES, "lines"))
    elif not bert:
        kept, rule = after(speeds, DROPPED_LINES, "lines"), f"the lines after the first {DROPPED_LINES}"
    elif devices > PER_NODE and "Namespace(" not in log.text:
        kept, rule = after(speeds, 1, "lines"), "the lines after the first"
    else:
        dropped = sum(step <= DROPPED_STEPS for step in steps)
        kept, rule = after(speeds, dropped, "lines"), f"the lines after the first {DROPPED_STEPS} steps"
    half = (
        log.find(r"\buse_amp=(\w+)", r"'--use_amp', '(\w+)'")
        or ("True" if re.search(r"INFO: +AMP :|use_pure_fp16[=:] ?True", log.text) else None)
        or ("False" if "ppcls" in log.text else log.named(r"(fp16|fp32|amp)"))
    )
    model = log.find(r"(bert-\w+)-uncased", r"(?s)Arch : .{0,200}?\bname : (\w+)")
    yield Reading(
        value=mean(kept) * devices,
        unit="sequences/s" if bert else "images/s",
        rule=f"the mean of ips over {rule}, times the number of cards",
        model=model.lower() if model else None,
        precision=precision(half),
        batch=log.count(*BATCH),
        devices=devices,
        hardware=prefixed("GPU of compute capability ", log.find(r"GPU Compute Capability: ([\d.]+)")),
        software=prefixed("CUDA runtime ", log.find(r"Runtime API Version: ([\d.]+)")),
    )


def _trimmed(speeds: list[float]) -> tuple[list[float], str]:
    out = max(ENDS, int(len(speeds) * END_SHARE))
    kept = sorted(speeds)[out : len(speeds) - out]
    if not kept:
        raise Unusable(
            "cut_off", f"{len(speeds)} lines after the first {DROPPED_LINES} are too few: {out} fall out at either end"
        )
    return kept, f"the lines after the first {DROPPED_LINES}, without the {out} slowest and the {out} fastest"


def _devices(log: Log) -> int | None:
    """Return the number of cards; None if unknown.

    It is from the launcher's table, from the file's name, or from the other ranks that the first rank waits for.
    """
    if trainers := log.count(r"PADDLE_TRAINERS_NUM +(\d+)"):
        return trainers
    named = log.named(r"gpu(\d+)") or log.named(r"N1C(\d+)")
    waited = log.find(r"not ready endpoints:\[([^\]]*)\]")
    if named:
        return int(named)
    if waited:
        return 1 + len(waited.split(","))
    return 1 if "PADDLE_TRAINER" not in log.text and "paddle.distributed.launch" not in log.text else None
