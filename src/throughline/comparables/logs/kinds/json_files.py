"""Results as JSON: DLPerf's result, Paddle's index, and the state of Hugging Face's Trainer.

* *DLPerf's result*, `bz32_result.json`, has a cell for each model and topology: {"bert": {"1n1g": {"average_speed":
  ..., "batch_size_per_device": ..., "median_speed": ..., "speedup": ...}}}.
* *Paddle's index* is a file with one line for each case, such as `nlp_bert_sp_bs32_fp32_1_speed`. `sp` means one card
  and `mp` several, and FINAL_RESULT is the throughput.
* *trainer_state.json*, which Hugging Face's Trainer writes: `train_samples_per_second` is the samples of all epochs
  divided by the runtime of `train()`. This runtime includes the evaluations, the logging and the first steps; nothing
  is dropped.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from throughline.comparables.logs.log import Log, Unusable, number
from throughline.records import ImportedRun
from throughline.spec import Topology

CASE = r"(?:[a-z]+_)?(?P<model>[\w-]+?)_(?:sp|mp)_bs(?P<batch>\d+)_(?P<precision>[tbf][fp](?:32|16|8))_\d+_speed"


def dlperf(log: Log) -> Iterator[ImportedRun]:
    """Yield the cells of a DLPerf result."""

    def is_cell(value: Any) -> bool:
        return isinstance(value, dict) and "median_speed" in value

    models = log.json.items() if isinstance(log.json, dict) else ()
    if not any(is_cell(cell) for _, cells in models if isinstance(cells, dict) for cell in cells.values()):
        return
    for model, cells in models:
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
    value = log.json
    if not isinstance(value, dict) or not value.keys() >= {"FINAL_RESULT", "model_name", "gpu_num"}:
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


def trainer(log: Log) -> Iterator[ImportedRun]:
    """Yield the job of a trainer_state.json."""
    if not log.raw.lstrip().startswith("{") or '"log_history"' not in log.raw:
        return
    try:
        state = json.loads(log.raw)
        ends = [entry for entry in state["log_history"] if "train_samples_per_second" in entry]
    except (json.JSONDecodeError, RecursionError, TypeError, KeyError):
        raise Unusable("broken", "it is no whole JSON file with a log_history") from None
    if not ends:
        raise Unusable("cut_off", "it is the state of a job that had not ended: train_samples_per_second is missing")
    batch, name = state.get("train_batch_size"), state.get("model_name") or state.get("_name_or_path")
    yield ImportedRun(
        value=number(str(ends[-1]["train_samples_per_second"])),
        unit="samples/s",
        rule="train_samples_per_second: all samples over the runtime of the whole job, nothing dropped",
        model=name if isinstance(name, str) else None,
        batch_size_per_device=batch if isinstance(batch, int) and batch > 0 else None,
        reasons=dict.fromkeys(("devices", "precision"), "the Trainer's state does not say it"),
    )


KINDS = {"DLPerf's result": dlperf, "Paddle's index": paddle_index, "Hugging Face Trainer": trainer}
