"""Read the modules, channels and errors of a machine's memory, as far as the system shows them to this user.

The speeds are in the firmware's table (SMBIOS, DSP0134 section 7.18), which usually root alone may read. Channels and
counts of errors are in the kernel's EDAC folder, which everybody may read if the board's driver is loaded.
"""

import contextlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULE = 17
"""The type of a structure about one slot of memory."""
SIZE, SPEED, CONFIGURED_SPEED = 0x0C, 0x15, 0x20
"""Where a structure has these words. Speeds are in megatransfers per second; 0 is unknown."""
_ROOT = "root alone may read the firmware's table"
_EDAC = "no driver counts errors of the memory (EDAC)"
REASONS = {
    "memory_modules": _ROOT, "memory_speed_mt_per_s": _ROOT, "memory_speed_most_mt_per_s": _ROOT,
    "memory_channels": _EDAC, "memory_errors_corrected": _EDAC, "memory_errors_uncorrected": _EDAC,
}  # fmt: skip


def facts(sys: Path) -> dict[str, Any]:
    """Return the facts of the memory. The speed is that of the slowest module. `sys` is the folder /sys."""
    modules = list(_modules(sys / "firmware/dmi/tables/DMI"))
    set_to = [speed for speed, _ in modules if speed]
    rated = [speed for _, speed in modules if speed]
    edac = sys / "devices/system/edac/mc"
    return {
        "memory_modules": len(modules) or None,
        "memory_speed_mt_per_s": min(set_to, default=None),
        "memory_speed_most_mt_per_s": min(rated, default=None),
        "memory_channels": len(_channels(edac)) or None,
        "memory_errors_corrected": _count(edac, "ce_count"),
        "memory_errors_uncorrected": _count(edac, "ue_count"),
    }


def _modules(table: Path) -> Iterator[tuple[int, int]]:
    """Yield (configured speed, rated speed) of each module in a table of SMBIOS; nothing if it cannot be read."""
    content = b""
    with contextlib.suppress(OSError):
        content = table.read_bytes()
    at = 0
    while at + 4 <= len(content):
        kind, length = content[at], content[at + 1]
        structure = content[at : at + length]
        if kind == MODULE and length > SPEED + 1 and _word(structure, SIZE):
            rated = _word(structure, SPEED)
            yield (_word(structure, CONFIGURED_SPEED) if length > CONFIGURED_SPEED + 1 else rated), rated
        ends = content.find(b"\0\0", at + max(4, length))  # two zeros end the texts behind a structure
        if ends < 0:
            return
        at = ends + 2


def _word(structure: bytes, at: int) -> int:
    value: int = struct.unpack_from("<H", structure, at)[0]
    return 0 if value == 0xFFFF else value


def _channels(edac: Path) -> set[tuple[str, str]]:
    """Return the (controller, channel) pairs that have a module."""
    found = set()
    for path in edac.glob("mc*/*/dimm_location"):
        with contextlib.suppress(OSError):
            if channel := re.search(r"channel (\d+)", path.read_text()):
                found.add((path.parent.parent.name, channel[1]))
    return found


def _count(edac: Path, name: str) -> int | None:
    """Return the sum of a counter over all controllers; None if the system has none."""
    counts = []
    for path in edac.glob(f"mc*/{name}"):
        with contextlib.suppress(OSError, ValueError):
            counts.append(int(path.read_text()))
    return sum(counts) if counts else None
