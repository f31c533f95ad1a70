"""Compile the fake CUDA driver: `python tests/gpu/double/build.py HEADERS [FOLDER]`, or `library(headers, folder)`.

HEADERS is a folder with cuda.h and cuda_runtime_api.h, such as triton/backends/nvidia/include in the site-packages of
an environment with the CUDA build of PyTorch. Standard library only.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror")
LINK = ("-shared", "-Wl,-soname,libcuda.so.1", f"-Wl,--version-script={HERE / 'exports.map'}", "-ldl")
HEADERS = Path("triton/backends/nvidia/include")


def headers(site_packages: Path) -> Path | None:
    """Return CUDA's headers in an environment's site-packages; None if it has none."""
    found = site_packages / HEADERS
    return found if (found / "cuda_runtime_api.h").is_file() else None


def library(headers: Path, folder: Path) -> Path:
    """Return `libcuda.so.1` in a folder of its own below `folder`. Compile it unless these sources are there already.

    Beside it is the link `libcuda.so`, which Triton's linker looks for. Raise CalledProcessError if it does not
    compile.
    """
    known = hashlib.sha256(" ".join((*FLAGS, *LINK)).encode())
    for source in sorted([*HERE.glob("*.cpp"), *HERE.glob("*.h"), HERE / "exports.map", headers / "cuda.h"]):
        known.update(source.read_bytes())
    made = folder / known.hexdigest()[:12] / "libcuda.so.1"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        _compile(headers, made)
    return made


def _compile(headers: Path, made: Path) -> None:
    """Compile every file, as many at once as there are cores, and link them. Others see the whole library or none."""
    with tempfile.TemporaryDirectory(dir=made.parent) as work:
        objects = {source: Path(work, f"{source.stem}.o") for source in sorted(HERE.glob("*.cpp"))}
        compiler = ["g++", *FLAGS, "-isystem", str(headers), "-c"]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda one: subprocess.run([*compiler, one[0], "-o", one[1]], check=True), objects.items()))
        partial = Path(work) / "libcuda.so.1"
        subprocess.run(["g++", *objects.values(), *LINK, "-o", partial], check=True)
        link = made.parent / "libcuda.so"
        if not link.is_symlink():
            link.symlink_to("libcuda.so.1")
        partial.replace(made)


if __name__ == "__main__":
    print(library(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.gettempdir())))
