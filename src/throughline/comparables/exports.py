"""Write our results in the two JSON formats in which other benchmarks store theirs: DLPerf's result and Paddle's index.

Imports read both formats; `log_kinds/framework_benchmarks.py` describes them.
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
        name = f"bz{summary.batch}_{summary.precision}"
        for framework, cells in summary.frameworks.items():
            measured = {topology: cell for topology, cell in cells.items() if cell.median_speed is not None}
            if measured:
                result = {summary.benchmark: {topology: _result(cell) for topology, cell in measured.items()}}
                write_text(folder / "dlperf" / f"{framework}_{name}_result.json", json.dumps(result) + "\n")
            for topology, cell in measured.items():
                case = _case(summary, Topology.parse(topology).world, cell)
                write_text(folder / "index" / framework / case["log_file"], json.dumps(case) + "\n")
            for topology, cell in cells.items():
                logs = (f"[{Path(log).stem}](../{name}/{log})" for log in cell.logs)
                links.append(
                    f"* {framework}, {topology}, batch {summary.batch}, {summary.precision}: {', '.join(logs)}"
                )
    if links:
        write_text(folder / "logs.md", "\n".join(links) + "\n")


def _result(cell: CellRecord) -> dict[str, Any]:
    """Return a cell in DLPerf's format, with two decimals."""
    names = ("average_speed", "batch_size_per_device", "median_speed", "speedup")
    values = {name: getattr(cell, name) for name in names}
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in values.items()}


def _case(summary: Summary, devices: int, cell: CellRecord) -> dict[str, Any]:
    """Return a cell with the keys of Paddle's index."""
    pictures, mode = summary.unit == "images/s", "sp" if devices == 1 else "mp"
    model = f"{summary.benchmark}_{mode}_bs{summary.batch}_{summary.precision}"
    return {
        "log_file": f"{'clas' if pictures else 'nlp'}_{model}_{devices}_speed",
        "model_name": f"{summary.benchmark}_bs{summary.batch}_{summary.precision}",
        "mission_name": summary.model,
        "direction_id": 0 if pictures else 1,
        "run_mode": mode,
        "index": 1,
        "gpu_num": devices,
        "FINAL_RESULT": round(cell.median_speed or 0.0, 3),
        "JOB_FAIL_FLAG": 0,
        "UNIT": summary.unit,
    }
