"""Read and write the two JSON formats in which other benchmarks store results: DLPerf's result and Paddle's index.

DLPerf: `bz32_result.json`, by model and topology: {"bert": {"1n1g": {"average_speed": ..., "batch_size_per_device":
..., "median_speed": ..., "speedup": ...}}}. Paddle: a file with one line for each case, such as
`nlp_bert_sp_bs32_fp32_1_speed`. `sp` means one card and `mp` several, and FINAL_RESULT is the throughput. An import
reads both formats in a folder of logs.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from throughline.files import write_text
from throughline.imports.log import Log, Reading, Unusable, number
from throughline.records import Cell, Summary
from throughline.spec import Topology

INDEX_KEYS = {"FINAL_RESULT", "model_name", "gpu_num"}
CASE = r"(?:[a-z]+_)?(?P<model>[\w-]+?)_(?:sp|mp)_bs(?P<batch>\d+)_(?P<precision>[tbf][fp](?:32|16|8))_\d+_speed"


def _json(log: Log) -> Any:
    """Return the value of a JSON file; None for any other text."""
    if not log.raw.lstrip().startswith("{"):
        return None
    try:
        return json.loads(log.raw)
    except (json.JSONDecodeError, RecursionError):
        return None


def read_result(log: Log) -> list[Reading]:
    """Return the cells of a DLPerf result; none if the file has another format."""
    value = _json(log)
    if not isinstance(value, dict) or not any(_is_cell(cell) for cell in _cells(value)):
        return []
    readings = []
    for model, cells in value.items():
        for name, cell in cells.items():
            if not (re.fullmatch(r"[1-9]\d*n[1-9]\d*g", name) and _is_cell(cell)):
                raise Unusable("broken", f"{model}, {name} is no cell of a topology with median_speed")
            topology = Topology.parse(name)
            readings.append(
                Reading(
                    framework=log.named(r"([a-z]+(?:-[a-z]+)*)_bz\d+") or "DLPerf",
                    value=number(str(cell["median_speed"])),
                    unit="samples/s",
                    rule="DLPerf's median_speed: the median of its repeats",
                    model=model,
                    precision=log.named(r"(fp32|tf32|bf16|fp16|fp8)"),
                    batch=cell.get("batch_size_per_device"),
                    devices=topology.world,
                    nodes=topology.nodes,
                )
            )
    return readings


def _cells(value: Mapping[str, Any]) -> Iterable[Any]:
    return (cell for cells in value.values() if isinstance(cells, dict) for cell in cells.values())


def _is_cell(cell: Any) -> bool:
    return isinstance(cell, dict) and "median_speed" in cell


def read_index(log: Log) -> list[Reading]:
    """Return the case of a Paddle index; none if the file has another format."""
    value = _json(log)
    if not isinstance(value, dict) or not value.keys() >= INDEX_KEYS:
        return []
    if value.get("JOB_FAIL_FLAG"):
        raise Unusable("cut_off", "JOB_FAIL_FLAG says that the case failed")
    case = re.search(CASE, str(value.get("log_file") or "")) or re.search(CASE, log.name)
    unit = str(value.get("UNIT") or "samples/s").replace("/sec", "/s")
    return [
        Reading(
            framework="Paddle's index",
            value=number(str(value["FINAL_RESULT"])),
            unit=unit if re.fullmatch(r"[\w.]+/s", unit) else "samples/s",
            rule="FINAL_RESULT: the mean of its run after the steps that its script skips",
            model=case["model"] if case else str(value["model_name"]),
            precision=case["precision"] if case else None,
            batch=int(case["batch"]) if case else None,
            devices=value["gpu_num"] if isinstance(value["gpu_num"], int) and value["gpu_num"] > 0 else None,
        )
    ]


KINDS = {"DLPerf's result": read_result, "Paddle's index": read_index}


def write(summaries: Iterable[Summary], folder: Path) -> None:
    """Write the cells of a benchmark's summaries in both formats, and a page with links to their logs.

    The files are `dlperf/<framework>_bz32_fp32_result.json`, `index/<framework>/nlp_bert_sp_bs32_fp32_1_speed` and
    `logs.md`.
    """
    links = []
    for summary in summaries:
        for framework, cells in summary.frameworks.items():
            known = {name: cell for name, cell in cells.items() if cell.median_speed is not None}
            cell_name = f"bz{summary.batch}_{summary.precision}"
            result = {name: _result(cell) for name, cell in known.items()}
            if result:
                place = folder / "dlperf" / f"{framework}_{cell_name}_result.json"
                write_text(place, json.dumps({summary.benchmark: result}) + "\n")
            for name, cell in known.items():
                case = _case(summary, name)
                write_text(folder / "index" / framework / case, json.dumps(_index(summary, name, cell, case)) + "\n")
            for name, cell in cells.items():
                logs = (f"[{Path(log).stem}](../{cell_name}/{log})" for log in cell.logs)
                links.append(f"* {framework}, {name}, batch {summary.batch}, {summary.precision}: {', '.join(logs)}")
    if links:
        write_text(folder / "logs.md", "\n".join(links) + "\n")


def _result(cell: Cell) -> dict[str, Any]:
    """Return a cell in DLPerf's format, with two decimals."""
    values = {
        "average_speed": cell.average_speed,
        "batch_size_per_device": cell.batch_size_per_device,
        "median_speed": cell.median_speed,
        "speedup": cell.speedup,
    }
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in values.items()}


def _case(summary: Summary, topology: str) -> str:
    devices = Topology.parse(topology).world
    field = "clas" if summary.unit == "images/s" else "nlp"
    mode = "sp" if devices == 1 else "mp"
    return f"{field}_{summary.benchmark}_{mode}_bs{summary.batch}_{summary.precision}_{devices}_speed"


def _index(summary: Summary, topology: str, cell: Cell, case: str) -> dict[str, Any]:
    """Return a cell with the keys of Paddle's index."""
    devices = Topology.parse(topology).world
    return {
        "log_file": case,
        "model_name": f"{summary.benchmark}_bs{summary.batch}_{summary.precision}",
        "mission_name": summary.model,
        "direction_id": 0 if summary.unit == "images/s" else 1,
        "run_mode": "sp" if devices == 1 else "mp",
        "index": 1,
        "gpu_num": devices,
        "FINAL_RESULT": round(cell.median_speed or 0.0, 3),
        "JOB_FAIL_FLAG": 0,
        "UNIT": summary.unit,
    }
