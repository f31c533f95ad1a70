"""What Horovod is compiled with: MPI, CUDA's compiler, and NCCL. Standard library only.

CUDA's compiler and libraries come from NVIDIA's Python packages if the environment has them, otherwise from the CUDA
toolkit of the machine. The packages have libraries with a number only (`libcudart.so.13`), in a folder `lib`. CMake
looks for `libcudart.so` in `lib64`.
"""

import os
import re
import shutil
from pathlib import Path

from throughline.processes import output


def builds_mpi() -> bool:
    """True if Horovod is built with MPI here: with MPI's compiler, unless HOROVOD_WITHOUT_MPI is set."""
    return shutil.which("mpicxx") is not None and "HOROVOD_WITHOUT_MPI" not in os.environ


def _nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def nvcc_version() -> str | None:
    """Return the version of the CUDA compiler on this machine, such as `13.0`; None if there is none."""
    compiler = _nvcc()
    if compiler is None:
        return None
    version = re.search(r"release (\d+\.\d+)", output(compiler, "--version") or "")
    return version[1] if version else None


def toolkit(cuda: str) -> str | None:
    """Return the folder of the CUDA toolkit on this machine; None if there is none of this major version."""
    compiler, version = _nvcc(), nvcc_version()
    if compiler is None or version is None or version.partition(".")[0] != cuda.partition(".")[0]:
        return None
    beside = Path(compiler).resolve().parents[1]  # a script at another place only starts the compiler
    return str(beside if (beside / "include/cuda_runtime.h").is_file() else "/usr/local/cuda")


def flags(environment: Path, cuda: str | None, work: Path, *, nccl: bool) -> dict[str, str]:
    """Return the variables of Horovod's compiler. Those that the user has set take precedence.

    cuda: the version that the framework is built for, if it is; work: a folder for what only the compiler needs.
    """
    chosen = {"HOROVOD_WITH_MPI" if builds_mpi() else "HOROVOD_WITHOUT_MPI": "1"}
    if cuda and (home := _as_toolkit(environment, work / "cuda") or toolkit(cuda)):
        chosen |= {"HOROVOD_CUDA_HOME": home, "CUDA_HOME": home}  # Horovod asks torch, which reads CUDA_HOME
    if cuda and nccl:
        chosen["HOROVOD_GPU_OPERATIONS"] = "NCCL"
        package = nvidia(environment) / "nccl"
        if package.is_dir():
            _link_libraries(package / "lib", work / "nccl")
            # the shared library: the framework loads the same one, and the packages have no static one
            chosen |= {
                "HOROVOD_NCCL_HOME": str(package),
                "HOROVOD_NCCL_LIB": str(work / "nccl"),
                "HOROVOD_NCCL_LINK": "SHARED",
            }
    return chosen | {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}


def nvidia(environment: Path) -> Path:
    """Return the folder of NVIDIA's packages."""
    return next(environment.glob("lib/python*/site-packages")) / "nvidia"


def _as_toolkit(environment: Path, folder: Path) -> str | None:
    """Make a folder like that of a CUDA toolkit from the packages; None if the compiler is not among them."""
    for compiler in nvidia(environment).glob("cu*/bin/nvcc"):
        package = compiler.parents[1]
        # nvcc looks for its parts beside itself, and would find those of the package behind a link
        shutil.copytree(package / "bin", folder / "bin")
        for name in ("include", "nvvm"):
            (folder / name).symlink_to(package / name)
        _link_libraries(package / "lib", folder / "lib64")
        return str(folder)
    return None


def _link_libraries(libraries: Path, folder: Path) -> None:
    """Link all libraries into a folder, each also without its number."""
    folder.mkdir(parents=True)
    for library in sorted(path for path in libraries.iterdir() if path.is_file()):
        (folder / library.name).symlink_to(library)
        plain = folder / f"{library.name.partition('.so')[0]}.so"
        if ".so." in library.name and not plain.exists():
            plain.symlink_to(library)
