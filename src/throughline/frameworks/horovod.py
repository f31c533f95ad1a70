"""What the frameworks on Horovod share: how ranks meet, and what Horovod says of itself."""

import os
import shutil
from types import ModuleType
from typing import Any

from throughline.frameworks import Unsupported


def join(hvd: ModuleType, options: dict[str, Any]) -> None:
    """Meet the other ranks through the starter that began this one. Unsupported where Horovod lacks the controller."""
    if options["controller"] == "mpi" and shutil.which("mpirun") is None:
        raise Unsupported("there is no mpirun here (Debian, Ubuntu: openmpi-bin)")
    if options["controller"] == "mpi" and not hvd.mpi_built():
        raise Unsupported(
            "Horovod was built without MPI: install its compiler (libopenmpi-dev), remove this environment's folder "
            "below ~/.cache/throughline/environments, and make frameworks"
        )
    # Horovod's bucket: gradients that are ready within a cycle travel together, up to so many bytes.
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(options["bucket_mb"] << 20)
    hvd.init()


def versions(options: dict[str, Any]) -> dict[str, str | None]:
    import horovod

    return {"horovod": horovod.__version__, "controller": options["controller"]}
