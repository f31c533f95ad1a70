"""The versions of NVIDIA's libraries that MXNet has loaded, asked of the libraries themselves."""

from __future__ import annotations

from pathlib import Path

from process_helpers import compiled
from throughline.frameworks.mxnet_horovod import libraries

SOURCE = """
#include <stddef.h>
int cudaRuntimeGetVersion(int *v) { *v = 11080; return 0; }
size_t cudnnGetVersion(void) { return 8906; }
int ncclGetVersion(int *v) { *v = 22105; return 0; }
"""


def test_loaded_libraries_say_their_versions(tmp_path: Path) -> None:
    names = ["libcudart.so.11.0", "libcudnn.so.8", "libnccl.so.2"]
    for name in names:
        compiled(tmp_path / name, SOURCE)
    maps = tmp_path / "maps"
    maps.write_text("".join(f"7f00-7f01 r-xp 00000000 fe:00 12 {tmp_path / name}\n" for name in names))
    assert libraries.versions(maps) == {"cuda": "11.8", "cudnn": "8.9.6", "nccl": "2.21.5"}


def test_a_library_that_is_not_loaded_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text("7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/libc.so.6\n")
    assert libraries.versions(tmp_path / "maps") == {"cuda": None, "cudnn": None, "nccl": None}
