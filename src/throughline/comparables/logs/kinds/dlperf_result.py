"""DLPerf's result: `bz32_result.json`, with a cell for each model and topology.

{"bert": {"1n1g": {"average_speed": ..., "batch_size_per_device": ..., "median_speed": ..., "speedup": ...}}}
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from throughline.comparables.logs.figures import number
from throughline.comparables.logs.log import Log, Reading, Unusable
from throughline.spec import Topology

NAME = "DLPerf's result"


def read(log: Log) -> Iterator[Reading]:
    """Yield the cells of a DLPerf result; none if the file has another format."""
    value = log.json
    if not isinstance(value, dict) or not any(_is_cell(cell) for cell in _cells(value)):
        return None
    for model, cells in value.items():
        for name, cell in cells.items():
            if not (re.fullmatch(r"[1-9]\d*n[1-9]\d*g", name) and _is_cell(cell)):
                raise Unusable("broken", f"{model}, {name} is no cell of a topology with median_speed")
            topology = Topology.parse(name)
            yield Reading(
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


def _cells(value: Mapping[str, Any]) -> Iterable[Any]:
    return (cell for cells in value.values() if isinstance(cells, dict) for cell in cells.values())


def _is_cell(cell: Any) -> bool:
    return isinstance(cell, dict) and "median_speed" in cell
