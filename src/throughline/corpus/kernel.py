"""Build and load kernel.c, the hot loops of the corpus: once per user, by the system's C compiler.

The library is in ~/.cache/throughline/kernel/. Its name has a hash of source, flags and machine, so that we never load
one that was built for another. `THROUGHLINE_KERNEL_FLAGS` adds compiler flags: tests use it to turn on sanitizers.
"""

import ctypes
import fcntl
import functools
import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

from throughline import files
from throughline.files import UserError

SOURCE = Path(__file__).with_name("kernel.c")
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared")
MORE_FLAGS = "THROUGHLINE_KERNEL_FLAGS"

_i64, _i32, _pointer = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
_u1, _u2, _i4, _i8, _u8 = (
    np.ctypeslib.ndpointer(dtype=kind, flags="C_CONTIGUOUS") for kind in ("u1", "u2", "i4", "i8", "u8")
)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "tokenizer_new": (_pointer, [ctypes.c_char_p, _i8, _i64, _i32, _i32]),
    "tokenizer_free": (None, [_pointer]),
    "tokenizer_scan": (_i64, [_pointer, _u1, _i8, _i8, _i64, _i4, _i8]),
    "tokenizer_unknown": (_i64, [_pointer, _i64, ctypes.POINTER(_pointer), ctypes.POINTER(_i64)]),
    "tokenizer_teach": (ctypes.c_int, [_pointer, _i64, _i4, _i64]),
    "tokenizer_lengths": (_i64, [_pointer, _i4, _i8, _i64, _i8]),
    "tokenizer_ids": (None, [_pointer, _i4, _i64, _i4]),
    "tokenizer_bytes": (_i64, [_pointer]),
    "split": (_i64, [_pointer, ctypes.c_char_p, _i8, _i64, _u1, _i64, _i8, _i8, _i64, _i8]),
    "pairs": (_i64, [_i64, _i64, _i64, _i8, _i8, _i64, ctypes.c_double, _u8, _u8, _i8, _i8, _i8, _i8, _u1]),
    "filled": (None, [
        _i64, _i64, _i64, _pointer, _i64, _i8, _i8, _i8, _i8, _u1, _i4, _u8, _i4, _i64, _i32, _i32, _i32,
        _u2, _i4, _u1, _u1, _i4, _i4, _u1,
    ]),
    "checked": (ctypes.c_int, [
        _i64, _i64, _i64, _i64, _i32, _i32, _i32, _i32, _u1, _pointer, _i4, _u1, _u1, _i4, _i4, _u1, _i8,
    ]),
    "planes": (None, [_pointer, _i64, _i64, _u1]),
}  # fmt: skip


@functools.cache
def load() -> Any:
    """Return the functions of kernel.c; UserError if there is no compiler or it fails."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "kernel")
    try:
        library = ctypes.CDLL(str(built(cache)))
    except OSError:  # the home is not writable or has no locks: build for this process alone
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            library = ctypes.CDLL(str(built(Path(folder))))  # it stays loaded when the file is removed
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def built(folder: Path) -> Path:
    """Return the shared library in `folder`; build it if it is not there. OSError if the folder cannot be used."""
    flags = [*FLAGS, *os.environ.get(MORE_FLAGS, "").split()]
    machine = "\0".join([*flags, platform.system(), platform.machine(), *platform.libc_ver()])
    path = folder / f"{hashlib.sha256(SOURCE.read_bytes() + machine.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _compile(path, flags)
    return path


def _compile(path: Path, flags: list[str]) -> None:
    import shutil
    import subprocess

    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None)
    failed = functools.partial(
        UserError,
        "the compiled part of the corpus cannot be built",
        next_step="install a C compiler (Debian, Ubuntu: gcc libc6-dev; Fedora, RHEL: gcc), then run snakemake again",
    )
    if compiler is None:
        raise failed(why="no C compiler is here: no $CC, cc, gcc or clang")
    with files.atomic(path) as temporary:
        run = subprocess.run([compiler, *flags, "-o", str(temporary), str(SOURCE)], capture_output=True, text=True)
        if run.returncode:
            raise failed(why=f"{Path(compiler).name} failed: {' '.join(run.stderr.strip().splitlines()[-1:])}")
