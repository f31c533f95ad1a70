"""A corpus is made by hundreds of short processes. None of them loads what it does not need."""

import os
import subprocess
import sys


def test_cutting_extracting_and_the_manifest_do_without_arrays() -> None:
    code = (
        "from throughline.corpus.source import dumps\n"
        "from throughline.corpus.text import extraction, vocabulary\n"
        "from throughline.corpus import manifest\n"
        "import sys; print({'numpy', 'h5py', 'pydantic', 'http.client', 'ssl'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("set()\n", "")


def test_algebra_has_one_thread() -> None:
    code = (
        "import os, sys; from throughline.files import command_line\n"
        "def main(): import numpy; print(len(os.listdir('/proc/self/task'))); return 3\n"
        "command_line(main, single=True)"
    )
    environment = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("1\n", 3)
