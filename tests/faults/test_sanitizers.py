"""The kernel's tests once more, with a kernel that reports undefined behaviour and accesses outside its arrays.

Tests of how the kernel is built are left out: they start processes that use no kernel, or one of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from throughline.corpus import kernel

FLAGS = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
TESTS = Path(__file__).parents[1] / "unit/corpus/test_kernel.py"
BUILDING = "processes or compiler"


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose kernel is built with gcc's sanitizers."""
    folder = tmp_path_factory.mktemp("sanitizers")
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(library).is_file():
        pytest.skip("needs gcc with its AddressSanitizer (Debian, Ubuntu: libgcc-12-dev)")
    return {
        **os.environ,
        kernel.MORE_FLAGS: FLAGS,
        "CC": "gcc",
        "XDG_CACHE_HOME": str(folder),
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",
    }


def test_the_kernel_stays_inside_its_arrays(sanitized: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-k",
        f"not ({BUILDING})",
        str(TESTS),
    ]
    run = subprocess.run(command, env=sanitized, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


@pytest.mark.parametrize(
    ("call", "report"),
    [
        ("elements(bytes.ctypes.data, 1000, out.ctypes.data)", "heap-buffer-overflow"),
        ("elements(bytes.ctypes.data + 1, 10, out.ctypes.data + 1)", "misaligned address"),
    ],
)
def test_the_sanitizers_see_a_wrong_call(sanitized: dict[str, str], call: str, report: str) -> None:
    code = (
        "import numpy as np; from throughline.corpus import kernel;"
        f"bytes, out = np.zeros(400, np.uint8), np.zeros(1000, np.uint32); kernel.load().{call}"
    )
    run = subprocess.run([sys.executable, "-c", code], env=sanitized, capture_output=True, text=True)
    assert run.returncode != 0 and report in run.stderr
