"""The versions of the NVIDIA libraries that this process has loaded. MXNet has no function for them."""

import ctypes
import re
from pathlib import Path

from throughline.frameworks.horovod import dotted


def versions(maps: Path = Path("/proc/self/maps")) -> dict[str, str | None]:
    """Return the versions of CUDA's runtime, cuDNN and NCCL; None for a library that this process has not loaded."""
    loaded = maps.read_text(encoding="utf-8", errors="replace")
    return {
        "cuda": _of(loaded, "libcudart", "cudaRuntimeGetVersion", 1000, 10),
        "cudnn": _of(loaded, "libcudnn", "cudnnGetVersion", 1000, 100),
        "nccl": _of(loaded, "libnccl", "ncclGetVersion", 10000, 100),
    }


def _of(loaded: str, library: str, function: str, major: int, minor: int) -> str | None:
    """Ask a loaded library. cuDNN returns its version, the others write it to the place that they are given."""
    path = re.search(rf"\S*/{library}\.so\S*", loaded)
    if path is None:
        return None
    ask = getattr(ctypes.CDLL(path[0]), function)
    if library == "libcudnn":
        ask.restype = ctypes.c_size_t
        return dotted(int(ask()), major, minor)
    code = ctypes.c_int()
    return dotted(code.value, major, minor) if ask(ctypes.byref(code)) == 0 else None
