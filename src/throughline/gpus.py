"""Read the version of the GPU driver, and resources/gpus.csv with datasheet peaks and prices. Standard library only.

Peaks in the file are dense (without sparsity), in TFLOP/s, and count a multiply-add as two operations. Each row names
the source of its figures. A device that is not in the file has no peak and no price: we never guess one.
"""

import csv
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from throughline.files import resource

FILE = resource("gpus.csv")
NO_DEVICE = ("", "-1", "NoDevFiles")
MODELS = Path("/proc/driver/nvidia/gpus")
"""NVIDIA's driver has a folder here for each GPU. No program has to be started to read its name."""


@dataclass(frozen=True)
class Gpu:
    """One row of resources/gpus.csv.

    peak_flops_per_s: by precision, None if the device has no units for it; matmul_flops_per_s: by precision, the
    fastest matrix product that somebody published for the device; nvlink_bytes_per_s: what a device sends to the others
    of its node at most, over all of its links (half of what datasheets state, which is the sum of both directions),
    None without NVLink, and where it joins pairs; price_per_hour: of one device, in `currency`;
    purchase_usd: about what one cost to buy in 2022.
    """

    name: str
    kind: str
    peak_flops_per_s: dict[str, float | None]
    matmul_flops_per_s: dict[str, float]
    matmul_source: str | None
    memory_bytes: float
    memory_bytes_per_s: float | None
    nvlink_bytes_per_s: float | None
    price_per_hour: float | None
    currency: str | None
    price_source: str | None
    purchase_usd: float | None
    source: str


def find(reported_name: str) -> Gpu | None:
    """Return the GPU with the name that a driver or a framework reports; None if the file lacks exactly this name."""
    return _all().get(_plain(reported_name))


def smallest_here(models: Path = MODELS) -> tuple[str, float | None]:
    """Return the name and the memory of this machine's GPU with the least memory; None if it has none that is known."""
    found = []
    for path in models.glob("*/information"):
        names = [line.partition(":")[2].strip() for line in path.read_text().splitlines() if line.startswith("Model:")]
        found += [(name, gpu.memory_bytes) for name in names if (gpu := find(name))]
    return min(found, key=lambda gpu: gpu[1], default=("", None))


def driver() -> str | None:
    """Return the version of NVIDIA's driver on this machine; None if there is no driver."""
    with suppress(OSError):
        if version := re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", Path("/proc/driver/nvidia/version").read_text()):
            return version[1]
    return None


def visible_devices(names: str | None) -> list[str] | None:
    """Return the devices that a variable such as CUDA_VISIBLE_DEVICES names: indices, UUIDs, or slices of MIG.

    None if the variable is not set: then all are visible. As for CUDA, an empty text hides all devices, and a name that
    stands for none hides those behind it.
    """
    if names is None:
        return None
    return list(takewhile(lambda name: name not in NO_DEVICE, (name.strip() for name in names.split(","))))


def _plain(name: str) -> str:
    """Return a device's name without NVIDIA's brand names, which some drivers put before it."""
    return re.sub(r"^(?:(?:NVIDIA|Tesla|GeForce)\s+)+", "", name.strip(), flags=re.IGNORECASE).casefold()


@cache
def _all() -> dict[str, Gpu]:
    known: dict[str, Gpu] = {}
    with FILE.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            gpu = Gpu(
                name=f"{row['gpu']} {row['form_factor']}",
                kind=row["gpu"],
                peak_flops_per_s={
                    precision: float(row[f"{precision}_tflops"]) * 1e12 if row[f"{precision}_tflops"] else None
                    for precision in ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")
                },
                matmul_flops_per_s={
                    precision: float(row[f"{precision}_matmul_tflops"]) * 1e12
                    for precision in ("bf16", "fp8")
                    if row[f"{precision}_matmul_tflops"]
                },
                matmul_source=row["matmul_source"] or None,
                memory_bytes=float(row["memory_gb"]) * 2**30,
                memory_bytes_per_s=float(row["bandwidth_gb_s"]) * 1e9 if row["bandwidth_gb_s"] else None,
                nvlink_bytes_per_s=float(row["nvlink_gb_s"]) / 2 * 1e9 if row["nvlink_gb_s"] else None,
                price_per_hour=float(row["price_per_hour"]) if row["price_per_hour"] else None,
                currency=row["currency"] or None,
                price_source=row["price_source"] or None,
                purchase_usd=float(row["purchase_usd"]) if row["purchase_usd"] else None,
                source=f"{row['source']} ({row['confidence']})",
            )
            known |= {_plain(name): gpu for name in row["reported_name"].split("|")}
    return known
