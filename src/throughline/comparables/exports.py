"""Write our results in the two JSON formats in which other benchmarks store theirs: DLPerf's result and Paddle's index.

Imports read both formats: `logs/kinds/dlperf_result.py` and `logs/kinds/paddle_index.py` describe them.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from throughline.files import write_text
from throughline.records import CellRecord, Summary
from throughline.spec import Topology


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
                path = folder / "dlperf" / f"{framework}_{cell_name}_result.json"
                write_text(path, json.dumps({summary.benchmark: result}) + "\n")
            for name, cell in known.items():
                case = _case(summary, name)
                write_text(folder / "index" / framework / case, json.dumps(_index(summary, name, cell, case)) + "\n")
            for name, cell in cells.items():
                logs = (f"[{Path(log).stem}](../{cell_name}/{log})" for log in cell.logs)
                links.append(f"* {framework}, {name}, batch {summary.batch}, {summary.precision}: {', '.join(logs)}")
    if links:
        write_text(folder / "logs.md", "\n".join(links) + "\n")


def _result(cell: CellRecord) -> dict[str, Any]:
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


def _index(summary: Summary, topology: str, cell: CellRecord, case: str) -> dict[str, Any]:
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
