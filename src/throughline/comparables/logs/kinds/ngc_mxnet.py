"""NVIDIA's DeepLearningExamples in MXNet: ResNet-50, with DLLogger's lines.

The benchmark drops the first epoch and takes the harmonic mean of the other epochs' images per second, which is all
images divided by all seconds. A file may have several runs, one for each number of GPUs. Each run begins with its
parameters.
"""

import re
from collections.abc import Iterator
from statistics import harmonic_mean

from throughline.comparables.logs.figures import after, numbers, precision, prefixed
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "NGC MXNet"
START = r"DLL [\d-]+ [\d:.]+ - PARAMETER arch : resnet"
EPOCH = r"DLL .*Epoch: \d+ +train\.loss : \S+ +train\.ips : ([\d.]+)"
END = r"DLL .*Summary: .*train\.ips : [\d.]+"


def read(log: Log) -> Iterator[Reading]:
    """Yield the runs of a log; none if the log is of another kind."""
    if not re.search(r"DLL .*\btrain\.ips : ", log.text):
        return None
    starts = [match.start() for match in re.finditer(START, log.text)] or [0]
    ends = [*starts[1:], len(log.text)]
    for start, end in zip(starts, ends, strict=True):
        yield _run(Log(log.name, log.text[start:end]))


def _run(log: Log) -> Reading:
    epochs = numbers(EPOCH, log.text)
    if not re.search(END, log.text):
        raise Unusable("cut_off", f"a run breaks off after {len(epochs)} whole epochs: its summary is missing")
    gpus = log.find(r"\bgpus : \[([\d, ]+)\]")
    devices, total = len(gpus.split(",")) if gpus else None, log.count(r"\bbatch_size : (\d+)")
    return Reading(
        value=harmonic_mean(after(epochs, 1, "epochs")),
        unit="images/s",
        rule="the harmonic mean of the epochs' train.ips, without the first epoch",
        model=prefixed("resnet", log.find(r"\bnum_layers : (\d+)")),
        precision=precision(log.find(r"\bdtype : (\w+)")),
        batch=total // devices if total and devices else None,
        devices=devices,
    )
