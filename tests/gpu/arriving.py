"""What a batch of pictures calls on its way to a step: `python arriving.py FOLDER < CASE`, on the fake driver.

The pixels come once as an array of the host, and once as a tensor that a decoder has left on the GPU. FOLDER/told has
both lists of calls. It also says whether the decoder's tensor could be freed when the batch was ready.
"""

import ctypes
import gc
import json
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from counting import plan, read

from throughline.rank.heartbeat import Heart
from throughline.rank.run import Run


class Left:
    """A tensor on the GPU of another library, which others read by DLPack."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **given: Any) -> Any:
        return self.tensor.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def main() -> None:
    folder, case = Path(sys.argv[1]), json.load(sys.stdin)
    run = Run(plan(case), 0, Heart(folder / "beat"))
    run.build()
    run.step()
    size = run.spec.parameters.image
    shape = run.spec.batch, size, size, 3
    labels = np.zeros(shape[0], np.int32)
    left = torch.zeros(shape, dtype=torch.uint8, device=run.framework.at)
    torch.cuda.synchronize()
    told = {
        "bytes": left.nbytes,
        "host": calls(run, folder, {"pixels": np.zeros(shape, np.uint8), "labels": labels}),
        "gpu": calls(run, folder, {"pixels": Left(left), "labels": labels}),
    }
    free = weakref.ref(left)
    del left
    gc.collect()
    (folder / "told").write_text(json.dumps({**told, "freed": free() is None}))


def calls(run: Run, folder: Path, arrays: dict[str, Any]) -> list[tuple[str, str, int, int]]:
    """Return what the loader's part and the delivery of a batch call, after one batch that prepares memory."""
    double, trace = ctypes.CDLL(None), folder / "trace"
    run.framework.deliver(run.framework.data(arrays))
    torch.cuda.synchronize()
    double.null_cuda_trace(str(trace).encode())
    batch = run.framework.deliver(run.framework.data(arrays))
    double.null_cuda_trace(None)
    assert batch["pixels"].is_cuda and batch["pixels"].dtype == torch.uint8
    return read(trace)


if __name__ == "__main__":
    main()
