"""Which build of an environment a machine gets: for CPUs, or a variant for GPUs. Standard library only.

The lines `#: variant` of envs/<framework>.txt describe the variants (recipes.py). What the machine has (`facts`) and
what the user wants (`wanted`) decide between them (`choose`). So the decision for another machine can be made, too.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from throughline import handover, nvidia_smi
from throughline.files import UserError

WANTED = "THROUGHLINE_GPU"
"""The variable with the user's choice. Without it, the file `gpu` in the environment has what `make GPU=...` wrote."""
CHOICE = re.compile(r"auto|none|cuda1[123]\d?")
DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
HIDDEN = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES with which no framework sees a GPU."""


@dataclass(frozen=True)
class Card:
    """A GPU: its name, and its compute capability, such as 9.0; () if the driver does not say it."""

    name: str
    capability: tuple[int, ...] = ()


@dataclass(frozen=True)
class Facts:
    """NVIDIA's GPUs in a machine, and the version of their driver ("" if unknown)."""

    cards: tuple[Card, ...] = ()
    driver: str = ""


@dataclass
class Variant:
    """A build of an environment for GPUs.

    driver: the oldest major version of NVIDIA's driver; lowest, highest: the compute capabilities that its packages
    have code for, () for no limit; requirements: instead of or in addition to those of the CPU build; without: the
    packages of the CPU build that it leaves out; index: where its own requirements come from, if not from the usual
    indexes; link: a package that looks for NVIDIA's libraries in its own folder.
    """

    name: str
    driver: int = 0
    lowest: tuple[int, ...] = ()
    highest: tuple[int, ...] = ()
    requirements: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    index: str = ""
    link: str = ""

    @property
    def major(self) -> int:
        """The major version of CUDA."""
        return int(self.name[len("cuda") :][:2])

    @property
    def cuda(self) -> str:
        """The version of CUDA, such as `13` or `12.6`."""
        minor = self.name[len("cuda") + 2 :]
        return f"{self.major}.{minor}" if minor else str(self.major)

    def unfit(self, facts: Facts) -> str | None:
        """Return why this build does not run on these GPUs; None if it does."""
        driver = re.match(r"\d+", facts.driver)
        if driver and int(driver[0]) < self.driver:
            return f"CUDA {self.cuda} needs driver {self.driver} or newer, and {facts.driver} is installed"
        for card in facts.cards:
            has = f"{card.name} has compute capability {_dotted(card.capability)}"
            if card.capability and self.highest and card.capability > self.highest:
                return f"{has}, and the packages for CUDA {self.cuda} have code up to {_dotted(self.highest)} only"
            if card.capability and self.lowest and card.capability < self.lowest:
                return f"{has}, and the packages for CUDA {self.cuda} have code from {_dotted(self.lowest)} on"
        return None


def choose(variants: list[Variant], wants: str, facts: Facts) -> tuple[Variant | None, str]:
    """Return the variant for a machine, None for the CPU build, and the reason in words.

    wants: `auto` for the newest one that fits, `none`, or a version of CUDA such as `cuda12`: the newest one that is
    not for a later major version, whether it fits this machine or not.
    """
    newest = sorted(variants, key=lambda variant: (variant.major, variant.name), reverse=True)
    if wants == "none":
        return None, "GPU=none"
    if wants != "auto":
        major = int(wants[len("cuda") :][:2])
        chosen = next((variant for variant in newest if variant.major <= major), None)
        return chosen, f"GPU={wants}" if chosen else f"it has no build for CUDA {major} or older"
    if not facts.cards:
        return None, "this machine has no NVIDIA GPU"
    reasons = [variant.unfit(facts) for variant in newest]
    for variant, reason in zip(newest, reasons, strict=True):
        if reason is None:
            return variant, f"{facts.cards[0].name}, driver {facts.driver or 'unknown'}"
    needs = [variant.driver for variant in newest if variant.unfit(replace(facts, driver="")) is None]
    way_out = f"install NVIDIA's driver {min(needs)} or newer" if needs else None
    return None, "; ".join(filter(None, [*reasons, way_out])) or "it has no build for GPUs"


def wanted() -> str:
    """Return what the user wants: `auto`, `none` or a version of CUDA. Raise UserError if it is something else."""
    said = os.environ.get(WANTED) or handover.get("gpu", "")
    if not said:
        with contextlib.suppress(OSError):
            said = Path(sys.prefix, "gpu").read_text().strip()
    if said and not CHOICE.fullmatch(said):
        raise UserError(f"GPU={said} is no choice", next_step="take GPU=auto, none, cuda12 or cuda13")
    return said or "auto"


def deciding() -> Facts:
    """Return the facts that decide: those of the machine on which the workflow was started.

    So every job of a workflow names the same environments.
    """
    given = handover.get("cards")
    return unpacked(given) if given else facts()


def packed(known: Facts) -> str:
    return json.dumps([known.driver, [[card.name, list(card.capability)] for card in known.cards]])


def unpacked(text: str) -> Facts:
    driver, cards = json.loads(text)
    return Facts(tuple(Card(name, tuple(capability)) for name, capability in cards), driver)


def hidden() -> bool:
    """True if the user hides all GPUs from every framework."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0") in HIDDEN


@functools.cache
def facts() -> Facts:
    """Return what this machine has. It asks nvidia-smi or, without it, NVML. Without a GPU this takes no time."""
    if shutil.which("nvidia-smi"):
        return _of_smi()
    return _of_nvml() if any(map(os.path.exists, DEVICES)) else Facts()


def _of_smi() -> Facts:
    try:
        rows = nvidia_smi.rows()
    except RuntimeError:
        return Facts()
    return Facts(tuple(Card(row.name, _numbers(row.capability)) for row in rows), rows[0].driver)


def _of_nvml() -> Facts:
    try:
        import pynvml
    except ImportError:
        return Facts()
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        cards = tuple(
            Card(str(pynvml.nvmlDeviceGetName(one)), tuple(pynvml.nvmlDeviceGetCudaComputeCapability(one)))
            for one in handles
        )
        return Facts(cards, str(pynvml.nvmlSystemGetDriverVersion()))
    except pynvml.NVMLError:
        return Facts()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _dotted(capability: tuple[int, ...]) -> str:
    return ".".join(map(str, capability))
