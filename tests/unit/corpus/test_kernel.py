"""The compiled code is built once, and shuffles bytes as numpy does."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from throughline.corpus.shards import making


@pytest.mark.parametrize("kind", ["i4", "i2", "i8", "i1"])
def test_planes(kind: str) -> None:
    data = np.random.default_rng(0).integers(-128, 127, size=(33, 7)).astype(kind)
    assert making._planes(data).tobytes() == data.reshape(-1, 1).view(np.uint8).T.tobytes()


@pytest.mark.slow
def test_many_processes_build_it_once(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho once >> {tmp_path}/calls\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": str(compiler)}
    code = "from throughline.corpus import kernel; assert kernel.load() is not None"
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(subprocess.run, [sys.executable, "-c", code], env=environment) for _ in range(4)]
    assert [run.result().returncode for run in runs] == [0] * 4
    assert (tmp_path / "calls").read_text() == "once\n"
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"PATH": "nowhere"}, "no C compiler is here"),
        ({"CC": "false"}, "false failed"),
        ({"XDG_CACHE_HOME": __file__}, None),  # a file where the folder would be
    ],
)
def test_without_a_compiler_an_error_says_what_to_install(
    tmp_path: Path, broken: dict[str, str], why: str | None
) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **broken}
    code = "from throughline.corpus import kernel; from throughline.files import command_line;"
    code += "command_line(lambda: print(kernel.load()))"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if why is None:
        assert run.stdout.startswith("<CDLL") and not run.stderr
    else:
        assert run.returncode == 1 and run.stderr.startswith("error: the compiled part of the corpus cannot be built")
        assert why in run.stderr and "next: install a C compiler (Debian, Ubuntu: gcc" in run.stderr
        assert len(run.stderr.splitlines()) == 3 and not list(tmp_path.rglob("*.so"))
