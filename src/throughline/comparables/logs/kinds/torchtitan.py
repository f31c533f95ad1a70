"""torchtitan: it prints a line every few steps, with the tokens per second of one device: `tps` (formerly `wps`).

torchtitan's published benchmarks read the line of step 90. Our figure is its `tps`, times the devices of the mesh.
"""

import re
from collections.abc import Iterator
from math import prod

from throughline.comparables.logs.figures import ascending, number
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "torchtitan"
LINE = r"step: +(\d+) +loss: .*?memory: .*?(?:tps|wps): +([\d,]+)"
STEP = 90


def read(log: Log) -> Iterator[Reading]:
    """Yield the run of a log, from the lines of its first rank if several print; none for a log of another kind."""
    first = [line for line in log.text.splitlines() if not (rank := re.match(r"\[rank(\d+)\]", line)) or rank[1] == "0"]
    lines = re.findall(LINE, "\n".join(first))
    if not lines:
        return
    ascending([int(step) for step, _ in lines])
    speed = dict(lines).get(str(STEP))
    if speed is None:
        raise Unusable("cut_off", f"the rule reads the line of step {STEP}; its last is that of step {lines[-1][0]}")
    mesh = re.search(r"Building \d+-D device mesh with .*?\[([\d, ]+)\]", log.text)
    devices = prod(int(size) for size in mesh[1].split(",")) if mesh else None
    size = re.search(r"Model (\S+) (\S+) size: ([\d,]+)", log.text)
    yield Reading(
        value=number(speed) * (devices or 1),
        unit="tokens/s" if devices else "tokens/s/device",
        rule=f"tps of the line of step {STEP}" + (", times the devices" if devices else ""),
        model=f"{size[1]} {size[2]}" if size else None,
        devices=devices,
        hardware=log.find(r"GPU capacity: (.+?) \(\d\) with"),
    )
