"""What the frameworks on Horovod share: how their ranks meet, and the versions of Horovod."""

import os
import shutil
from types import ModuleType
from typing import Any

from throughline.frameworks import Unsupported


def join(hvd: ModuleType, options: dict[str, Any], kind: str) -> None:
    """Meet the other ranks through the launcher that started this rank.

    Raises Unsupported if Horovod was built without the controller, and on GPUs if NCCL is built in but the options say
    no, or the other way round.
    """
    if options["controller"] == "mpi" and shutil.which("mpirun") is None:
        raise Unsupported("there is no mpirun here (Debian, Ubuntu: openmpi-bin)")
    if options["controller"] == "mpi" and not hvd.mpi_built():
        raise Unsupported(
            "Horovod was built without MPI: install its compiler (libopenmpi-dev), remove this environment's folder "
            "below ~/.cache/throughline/environments, and make frameworks"
        )
    has_nccl = bool(hvd.nccl_built())
    if kind == "cuda" and options["nccl"] and not has_nccl:
        raise Unsupported(
            "Horovod was built without NCCL, so gradients would travel through the host: build it where nvcc and NCCL "
            "are (make frameworks), or measure it as it is with options: {nccl: false}"
        )
    if kind == "cuda" and has_nccl and not options["nccl"]:
        raise Unsupported("Horovod was built with NCCL, and options.nccl is false: build one without nvcc on the path")
    # The size of Horovod's buckets: gradients that are ready in the same cycle travel together, up to this many bytes.
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(options["bucket_mb"] << 20)
    hvd.init()


def versions(hvd: ModuleType, options: dict[str, Any]) -> dict[str, str | None]:
    import horovod

    nccl = "built" if hvd.nccl_built() else "not built"
    return {"horovod": horovod.__version__, "controller": options["controller"], "horovod_nccl": nccl}
