"""Load the corpus's hot loops as compiled code: kernel.c, built once per user by the system's C compiler.

The library is in ~/.cache/throughline/kernel/. Its name has a hash of source, flags and machine, so that we never load
one that was built for another. Without a compiler, or with `THROUGHLINE_KERNEL=off`, numpy and Python give the same
results several times slower. `THROUGHLINE_KERNEL_FLAGS` adds compiler flags: tests use it to turn on sanitizers.
"""

import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from throughline import files

SOURCE = Path(__file__).with_name("kernel.c")
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared")
OFF = "THROUGHLINE_KERNEL"
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
    "elements": (None, [_pointer, _i64, _pointer]),
    "looked_up": (_i64, [_i64, _i64, _i4, _i8, _i8, _u1, _pointer, _i64, _i64, _i8, _i64, _i8, _i64]),
}  # fmt: skip


@functools.cache
def load() -> Any | None:
    """Return the functions of kernel.c, or None if they cannot be built or loaded. A line on stderr then says why."""
    if os.environ.get(OFF) == "off":
        return None
    try:
        library = _library()
    except (OSError, RuntimeError) as error:
        print(
            f"note: the corpus is made without compiled code, several times slower ({error}); a C compiler (Debian,"
            " Ubuntu: gcc libc6-dev; Fedora, RHEL: gcc) would change that, and nothing else",
            file=sys.stderr,
        )
        return None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _library() -> ctypes.CDLL:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "kernel")
    try:
        return ctypes.CDLL(str(built(cache)))
    except OSError:  # the home is not writable or has no locks: build for this process alone
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            return ctypes.CDLL(str(built(Path(folder))))  # it stays loaded when the file is removed


def built(folder: Path) -> Path:
    """Return the shared library in `folder`; build it if it is not there. OSError or RuntimeError if that fails."""
    named = "\0".join([*_flags(), platform.system(), platform.machine(), *platform.libc_ver()])
    digest = hashlib.sha256(SOURCE.read_bytes() + named.encode())
    path = folder / f"{digest.hexdigest()[:16]}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _build(path)
    return path


def _flags() -> list[str]:
    return [*FLAGS, *os.environ.get(MORE_FLAGS, "").split()]


def _build(path: Path) -> None:
    import shutil
    import subprocess

    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("no C compiler was found")
    with files.atomic(path) as temporary:
        command = [compiler, *_flags(), "-o", str(temporary), str(SOURCE)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{Path(compiler).name} failed: {run.stderr.strip().splitlines()[-1:]}")
