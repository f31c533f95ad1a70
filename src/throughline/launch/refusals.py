"""Why a measurement of an acceptance failed, in words that tell a stranger which node and which GPU it was.

A run counts its nodes and GPUs from 0: `GPU 0` of a run that sees only the sixth GPU of a node is GPU 5. The names of
machines are masked.
"""

import os
import re
from contextlib import suppress

from throughline import files
from throughline.files import UserError
from throughline.launch.fleet import known
from throughline.launch.machine import TooFewGpus
from throughline.launch.supervision import Unfit
from throughline.observe import telemetry_cards
from throughline.records.visit import Broken, Failure
from throughline.study.acceptance import Measurement, Place

MOST = 300
"""The most characters of a reason: a rank's last line of output may be long."""


def failure(measured: Measurement, error: UserError) -> Failure:
    """Return why a measurement failed, and which parts of the machine are broken according to that."""
    place, nodes = measured.place, in_order(measured.place)
    broken: list[Broken] = []
    if isinstance(error, Unfit) and error.node < len(nodes):
        faults = telemetry_cards.broken(error.faults)
        broken = [Broken(node=nodes[error.node], device=_gpu(place, index), fault=fault) for index, fault in faults]
    if isinstance(error, TooFewGpus) and place.kind == "node":
        fault = f"lacks a GPU: there are {error.gpus}, and {error.ranks} are to be measured"
        broken = [Broken(node=nodes[0], device=None, fault=fault)]
    what = error.what.removeprefix(f"{measured.visit}: ")
    text = files.scrub(f"{what} ({error.why})" if error.why and not broken else what)
    text = place.renumbered(" ".join(text.split()), nodes)
    text = re.sub(r"\bGPU (\d+)\b", lambda match: f"GPU {_gpu(place, int(match[1]))}", text)
    return Failure(reason=text[:MOST], broken=broken)


def _gpu(place: Place, index: int) -> int:
    return index if place.device is None else place.device


def in_order(place: Place) -> list[int]:
    """Return the numbers of a run's nodes in the order of its ranks, which is Slurm's."""
    names = os.environ.get(files.NODES, "").split()
    with suppress(UserError):
        numbers = {name.rpartition("@")[2]: number for number, name in known().items()}
        found = [numbers[name] for name in names if name in numbers]
        if sorted(found) == sorted(place.nodes):
            return found
    return list(place.nodes)
