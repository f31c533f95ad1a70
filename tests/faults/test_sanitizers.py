"""The tests of the compiled loops once more, with code that reports undefined behaviour and wrong memory accesses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from throughline.corpus import kernel

FLAGS = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
CORPUS = Path(__file__).parents[1] / "unit/corpus"
TESTS = [CORPUS / name for name in ("text/test_tokenization.py", "shards/test_examples.py", "bpe/test_encoding.py")]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose kernel is built with gcc's sanitizers."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(library).is_file():
        pytest.skip("needs gcc with its AddressSanitizer (Debian, Ubuntu: libgcc-12-dev)")
    cache = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("sanitizers")), kernel.MORE_FLAGS: FLAGS, "CC": "gcc"}
    python = {"LD_PRELOAD": library, "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": "detect_leaks=0"}
    return {**os.environ, **cache, **python}


def test_the_kernel_stays_inside_its_arrays(sanitized: dict[str, str]) -> None:
    tests = [*map(str, TESTS), f"{CORPUS}/test_kernel.py::test_planes"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    run = subprocess.run(command, env=sanitized, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


@pytest.mark.parametrize(
    ("call", "report"),
    [
        ("planes(data.ctypes.data, 1000, 4, out)", "heap-buffer-overflow"),
        ("tokenizer_ids(1, data.view(np.int32), 1, data.view(np.int32))", "misaligned address"),
    ],
)
def test_the_sanitizers_see_a_wrong_call(sanitized: dict[str, str], call: str, report: str) -> None:
    code = (
        "import numpy as np; from throughline.corpus import kernel;"
        f"data, out = np.zeros(400, np.uint8), np.zeros(4000, np.uint8); kernel.load().{call}"
    )
    run = subprocess.run([sys.executable, "-c", code], env=sanitized, capture_output=True, text=True)
    assert run.returncode != 0 and report in run.stderr
