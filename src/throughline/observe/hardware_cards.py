"""Read a GPU's links, temperature limits and memory faults with NVML: facts that may explain why it is slow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import pynvml as nvml
except ImportError:
    nvml = None

Question = Callable[[], Any]


def facts_of(handle: Any, root: Path = Path("/")) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the facts of a GPU, and the reason for each that is None."""
    answers: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, question in {**_links(handle), **_faults(handle)}.items():
        try:
            answers[name] = question()
        except (nvml.NVMLError, OSError, ValueError) as error:
            answers[name] = None
            reasons[name] = f"NVML: {error}" if isinstance(error, nvml.NVMLError) else str(error)
    try:
        answers["numa_node"] = _numa_node(handle, root)
    except (nvml.NVMLError, OSError, ValueError) as error:
        why = error if isinstance(error, ValueError) else type(error).__name__
        answers["numa_node"], reasons["numa_node"] = None, f"the system does not say: {why}"
    return answers, reasons


def _links(handle: Any) -> dict[str, Question]:
    """Return the questions about the links and the limits of the temperature."""

    def limit(kind: str) -> Question:
        return lambda: nvml.nvmlDeviceGetTemperatureThreshold(
            handle, getattr(nvml, f"NVML_TEMPERATURE_THRESHOLD_{kind}")
        )

    return {
        "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "pcie_generation_most": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "pcie_width_most": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
        "pcie_replays": lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle),
        "nvlinks": lambda: _nvlinks(handle),
        "temperature_slowdown_c": limit("SLOWDOWN"),
        "temperature_most_c": limit("GPU_MAX"),
    }


def _faults(handle: Any) -> dict[str, Question]:
    """Return the questions about faults of the memory. Counts are since the driver was loaded, or ever."""

    def ecc(kind: str, since: str) -> Question:
        wanted = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
        return lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, wanted, getattr(nvml, f"NVML_{since}_ECC"))

    def rows(index: int, kind: type) -> Question:
        return lambda: kind(nvml.nvmlDeviceGetRemappedRows(handle)[index])

    causes = ("MULTIPLE_SINGLE_BIT_ECC_ERRORS", "DOUBLE_BIT_ECC_ERROR")
    return {
        "ecc_corrected": ecc("CORRECTED", "VOLATILE"),
        "ecc_uncorrected": ecc("UNCORRECTED", "VOLATILE"),
        "ecc_corrected_ever": ecc("CORRECTED", "AGGREGATE"),
        "ecc_uncorrected_ever": ecc("UNCORRECTED", "AGGREGATE"),
        "rows_remapped_corrected": rows(0, int),
        "rows_remapped_uncorrected": rows(1, int),
        "rows_pending": rows(2, bool),
        "rows_failed": rows(3, bool),
        "pages_retired": lambda: sum(
            len(nvml.nvmlDeviceGetRetiredPages(handle, getattr(nvml, f"NVML_PAGE_RETIREMENT_CAUSE_{cause}")))
            for cause in causes
        ),
    }


def _nvlinks(handle: Any) -> list[bool]:
    """Return for each NVLink of the GPU whether it is active. Raise NVMLError if the GPU has none."""
    states: list[bool] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError:
            if not link:
                raise
            break  # the GPU has no more
    return states


def _numa_node(handle: Any, root: Path) -> int:
    """Return the NUMA node of the GPU's PCIe slot."""
    bus = nvml.nvmlDeviceGetPciInfo(handle).busId
    name = (bus.decode() if isinstance(bus, bytes) else bus).lower()
    node = int((root / "sys/bus/pci/devices" / name[-12:] / "numa_node").read_text())
    if node < 0:
        raise ValueError("the slot belongs to no node")
    return node
