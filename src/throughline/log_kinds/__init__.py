from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Kind:
    step: str
    of: Literal["job", "device"] = "job"


def timed() -> dict[str, Kind]:
    return {
        "nanogpt": Kind(r"iter (?P<step>\d+): loss (?P<loss>[\d.]+), time (?P<ms>[\d.]+)ms"),
        "torchtitan": Kind(r"step: +(?P<step>\d+) .*loss: +(?P<loss>[\d.]+).*tps: +(?P<per_s>[\d,]+)", "device"),
    }
