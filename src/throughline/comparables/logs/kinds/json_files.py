"""Results as JSON: DLPerf's result and Paddle's index.

* *DLPerf's result*, `bz32_result.json`, has a cell for each model and topology: {"bert": {"1n1g": {"average_speed":
  ..., "batch_size_per_device": ..., "median_speed": ..., "speedup": ...}}}.
* *Paddle's index* is a file with one line for each case, such as `nlp_bert_sp_bs32_fp32_1_speed`. `sp` means one card
  and `mp` several, and FINAL_RESULT is the throughput.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from throughline.comparables.logs.kind import Kind
from throughline.comparables.logs.log import Log, Unusable, number
from throughline.records import ImportedRun
from throughline.spec import Topology

CASE = r"(?:[a-z]+_)?(?P<model>[\w-]+?)_(?:sp|mp)_bs(?P<batch>\d+)_(?P<precision>[tbf][fp](?:32|16|8))_\d+_speed"


def value_of(log: Log) -> dict[str, Any]:
    """Return the value of a JSON file; an empty one for any other text."""
    try:
        return json.loads(log.raw) if log.raw.lstrip().startswith("{") else {}
    except (json.JSONDecodeError, RecursionError):
        return {}


def dlperf(log: Log) -> Iterator[ImportedRun]:
    """Yield the cells of a DLPerf result."""

    def is_cell(value: Any) -> bool:
        return isinstance(value, dict) and "median_speed" in value

    models = value_of(log)
    if not any(is_cell(cell) for cells in models.values() if isinstance(cells, dict) for cell in cells.values()):
        return
    for model, cells in models.items():
        for name, cell in cells.items():
            if not (re.fullmatch(r"[1-9]\d*n[1-9]\d*g", name) and is_cell(cell)):
                raise Unusable("broken", f"{model}, {name} is no cell of a topology with median_speed")
            topology = Topology.parse(name)
            yield ImportedRun(
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


def paddle_index(log: Log) -> Iterator[ImportedRun]:
    """Yield the case of a Paddle index."""
    value = value_of(log)
    if not value.keys() >= {"FINAL_RESULT", "model_name", "gpu_num"}:
        return
    if value.get("JOB_FAIL_FLAG"):
        raise Unusable("cut_off", "JOB_FAIL_FLAG says that the case failed")
    case = re.search(CASE, str(value.get("log_file") or "")) or re.search(CASE, log.name)
    unit = str(value.get("UNIT") or "samples/s").replace("/sec", "/s")
    devices = value["gpu_num"]
    yield ImportedRun(
        value=number(str(value["FINAL_RESULT"])),
        unit=unit if re.fullmatch(r"[\w.]+/s", unit) else "samples/s",
        rule="FINAL_RESULT: the mean of its run after the steps that its script skips",
        model=case["model"] if case else str(value["model_name"]),
        precision=case["precision"] if case else None,
        batch_size_per_device=int(case["batch"]) if case else None,
        devices=devices if isinstance(devices, int) and devices > 0 else None,
    )


DLPERF = Kind(title="DLPerf's result", reader=dlperf)
PADDLE_INDEX = Kind(title="Paddle's index", reader=paddle_index)
