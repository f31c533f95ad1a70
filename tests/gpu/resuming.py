"""Save a rank's checkpoint and restore it in a second rank: `python resuming.py FOLDER < CASE`, on the fake driver.

Kernels of the fake driver compute nothing. So every tensor of the first rank gets numbers by a copy, and FOLDER/told
says which tensors of the second rank have other numbers, on which devices they are, and what a step of both ranks
calls.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

import torch
from counting import plan, read_step

from throughline.frameworks.torch.rank import CHECKPOINTED
from throughline.rank.heartbeat import Heart
from throughline.rank.run import Run

SMALL_BYTES = 1 << 20


def main() -> None:
    folder, case = Path(sys.argv[1]), json.load(sys.stdin)
    first, second = (Run(plan(case), 0, Heart(folder / f"beat{number}")) for number in range(2))
    for run in (first, second):
        run.build()
    for _ in range(3):
        first.step()
    for number, tensor in enumerate(tensors(first).values()):
        tensor.copy_(torch.full(tensor.shape, number % 100 + 1).to(tensor.dtype))
    kept = io.BytesIO()
    first.framework.save(kept)
    kept.seek(0)
    second.framework.restore(kept)
    mine, other = tensors(first), tensors(second)
    different = [name for name in mine if name not in other or differ(mine[name], other[name])]
    for run in (first, second):
        for _ in range(2):  # the first step of a rank prepares libraries
            run.step()
    told = {
        "tensors": len(mine),
        "different": different,
        "devices": sorted({str(tensor.device) for tensor in other.values()}),
        "steps": [read_step(run, folder / f"step{number}") for number, run in enumerate((first, second))],
    }
    (folder / "told").write_text(json.dumps(told))


def differ(mine: torch.Tensor, other: torch.Tensor) -> bool:
    """True if the numbers differ. Where both lie on a card, the fake driver copies small tensors only."""
    small = mine.nbytes <= SMALL_BYTES
    return mine.shape != other.shape or (small and not torch.equal(mine.cpu(), other.cpu()))


def tensors(run: Run) -> dict[str, Any]:
    """Return every tensor on the GPU of what a checkpoint holds, by its place."""
    found: dict[str, Any] = {}

    def look(place: str, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            found[place] = value.detach()
        elif isinstance(value, dict):
            for name, content in value.items():
                look(f"{place} {name}", content)
        elif isinstance(value, list):
            look(place, dict(enumerate(value)))

    for part, name in CHECKPOINTED.items():
        look(part, getattr(run.framework, name).state_dict())
    return found


if __name__ == "__main__":
    main()
