"""Paddle's index: a file with one line for each case, such as `nlp_bert_sp_bs32_fp32_1_speed`.

`sp` means one card and `mp` several, and FINAL_RESULT is the throughput.
"""

import re
from collections.abc import Iterator

from throughline.comparables.logs.figures import number
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "Paddle's index"
KEYS = {"FINAL_RESULT", "model_name", "gpu_num"}
CASE = r"(?:[a-z]+_)?(?P<model>[\w-]+?)_(?:sp|mp)_bs(?P<batch>\d+)_(?P<precision>[tbf][fp](?:32|16|8))_\d+_speed"


def read(log: Log) -> Iterator[Reading]:
    """Yield the case of a Paddle index; none if the file has another format."""
    value = log.json
    if not isinstance(value, dict) or not value.keys() >= KEYS:
        return
    if value.get("JOB_FAIL_FLAG"):
        raise Unusable("cut_off", "JOB_FAIL_FLAG says that the case failed")
    case = re.search(CASE, str(value.get("log_file") or "")) or re.search(CASE, log.name)
    unit = str(value.get("UNIT") or "samples/s").replace("/sec", "/s")
    devices = value["gpu_num"]
    yield Reading(
        value=number(str(value["FINAL_RESULT"])),
        unit=unit if re.fullmatch(r"[\w.]+/s", unit) else "samples/s",
        rule="FINAL_RESULT: the mean of its run after the steps that its script skips",
        model=case["model"] if case else str(value["model_name"]),
        precision=case["precision"] if case else None,
        batch=int(case["batch"]) if case else None,
        devices=devices if isinstance(devices, int) and devices > 0 else None,
    )
