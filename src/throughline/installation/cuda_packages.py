"""CUDA's compiler and libraries from NVIDIA's Python packages, in the shape in which Horovod and MXNet look for them.

The packages have libraries with a number only (`libcudart.so.13`), in a folder `lib`. CMake looks for `libcudart.so` in
`lib64`. Standard library only.
"""

import shutil
from pathlib import Path


def compiler_flags(environment: Path, toolkit: str | None, work: Path, *, nccl: bool) -> dict[str, str]:
    """Return Horovod's flags for CUDA, and for NCCL if it is wanted.

    CUDA's compiler comes from the packages of the environment, otherwise from the toolkit of the machine. So does NCCL.
    What is made for that is in `work`, and the finished Horovod does not need it.
    """
    home = _as_toolkit(environment, work / "cuda") or toolkit
    flags = {"HOROVOD_CUDA_HOME": home, "CUDA_HOME": home} if home else {}  # Horovod asks torch, which reads CUDA_HOME
    if not nccl:
        return flags
    flags["HOROVOD_GPU_OPERATIONS"] = "NCCL"
    for package in _packages(environment).glob("nccl"):
        _link_libraries(package / "lib", work / "nccl")
        # the shared library: the framework loads the same one, and the packages have no static one
        flags |= {
            "HOROVOD_NCCL_HOME": str(package),
            "HOROVOD_NCCL_LIB": str(work / "nccl"),
            "HOROVOD_NCCL_LINK": "SHARED",
        }
    return flags


def link_beside(environment: Path, package: str) -> None:
    """Link NVIDIA's libraries into the folder of a package that looks for them there, whatever LD_LIBRARY_PATH says."""
    folder = _packages(environment).parent / package
    for library in sorted(_packages(environment).glob("*/lib/*.so.*")):
        if folder.is_dir() and not (folder / library.name).exists():
            (folder / library.name).symlink_to(library)


def _packages(environment: Path) -> Path:
    """Return the folder of NVIDIA's packages."""
    return next(environment.glob("lib/python*/site-packages")) / "nvidia"


def _as_toolkit(environment: Path, folder: Path) -> str | None:
    """Make a folder like that of a CUDA toolkit from the packages; None if the compiler is not among them."""
    for compiler in _packages(environment).glob("cu*/bin/nvcc"):
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
