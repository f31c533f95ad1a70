"""How often an acceptance calls one of many equal devices slow, and how often it finds one that is.

`python benchmarks/slow_parts.py` simulates acceptances and lets outliers.py judge them. Every acceptance has six
figures of each device. `alarms` is the share of acceptances of equal devices in which anything is called slow, with its
95 % interval (Clopper and Pearson). The next columns are the shares of slow devices that are found; `two` is that of
two devices that are both 5 % slow. All devices share a drift of 1 % between rounds.
"""

import argparse
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from throughline import outliers
from throughline.outliers import TOLERANCE, Peers
from throughline.records.acceptance import DISKS_DIFFER

FIGURES, DRIFT, SEED = 6, 0.01, 1
SLOW = (0.03, 0.05, 0.10)
TWO = 0.05


@dataclass(frozen=True)
class Fleet:
    """Equal devices. All deviations are standard deviations of logarithms.

    between: of the devices, in each figure; noise: of single repeats; heavy: the noise has the tails of Student's t
    with 3 degrees of freedom.
    """

    devices: int
    repeats: int
    between: float
    noise: float
    heavy: bool = False

    def measured(self, chance: np.random.Generator, slow: float = 0.0, how_many: int = 1) -> dict[str, Peers[int]]:
        """Return the figures of an acceptance in which the first devices are slower by a share."""
        shape = self.devices, self.repeats
        figures = {}
        for figure in range(FIGURES):
            noise = chance.standard_t(3, shape) / math.sqrt(3) if self.heavy else chance.standard_normal(shape)
            logs = self.between * chance.standard_normal((self.devices, 1)) + self.noise * noise
            logs += DRIFT * chance.standard_normal((1, self.repeats))
            logs[:how_many] += math.log1p(-slow)
            speeds = np.exp(logs).tolist()
            figures[f"figure {figure}"] = Peers(
                {device: dict(enumerate(values, start=1)) for device, values in enumerate(speeds)}
            )
        return figures


@dataclass(frozen=True)
class QuickFleet(Fleet):
    """The devices of several nodes in a quick acceptance. It has four figures of each device, three of each node, and
    two of its disk.

    What devices share with others of their node differs between nodes as well. disks: the deviation of disks, both
    between them and between their repeats.
    """

    of_node: int = 8
    disks: float = 0.1

    def measured(self, chance: np.random.Generator, slow: float = 0.0, how_many: int = 1) -> dict[str, Peers[int]]:
        figures = {}
        usual = self.between, self.noise, TOLERANCE
        kinds = [(self.of_node, *usual)] * 4 + [(1, *usual)] * 3 + [(1, self.disks, self.disks, DISKS_DIFFER)] * 2
        for figure, (each, between, noise, tolerance) in enumerate(kinds):
            shape = self.devices // self.of_node, each, self.repeats
            drawn = chance.standard_t(3, shape) / math.sqrt(3) if self.heavy else chance.standard_normal(shape)
            parts = chance.standard_normal((*shape[:2], 1)) + chance.standard_normal((shape[0], 1, 1))
            logs = between / math.sqrt(2) * parts + noise * drawn
            logs += DRIFT * chance.standard_normal(self.repeats)
            speeds = np.exp(logs.reshape(-1, self.repeats))
            speeds[:how_many] *= 1 - slow
            values = {part: dict(enumerate(repeats, start=1)) for part, repeats in enumerate(speeds.tolist())}
            figures[f"figure {figure}"] = Peers(values, tolerance=tolerance)
        return figures


QUICK = [QuickFleet(1024, 3, 0.007, 0.01, heavy, disks=disks) for heavy in (False, True) for disks in (0.1, 0.2)]
"""128 nodes with 8 devices each."""
FLEETS = [
    Fleet(devices, repeats, between, noise, heavy)
    for devices, repeats, (between, noise, heavy) in itertools.product(
        (4, 16, 128),
        (3, 5),
        (
            (0.002, 0.003, False),
            (0.005, 0.005, False),
            (0.01, 0.01, False),
            (0.002, 0.005, True),
            (0.005, 0.01, True),
            (0.01, 0.01, True),
        ),
    )
]


def called_slow(figures: dict[str, Peers[int]]) -> set[int]:
    """Return the devices that are called slow in at least one figure."""
    judged = outliers.judge(figures)
    return {device for standings in judged.values() for device, standing in standings.items() if standing.slow}


def alarms(fleet: Fleet, acceptances: int, seed: int = SEED) -> int:
    """Return in how many acceptances of equal devices a device is called slow."""
    chance = np.random.default_rng(seed)
    return sum(bool(called_slow(fleet.measured(chance))) for _ in range(acceptances))


def found(fleet: Fleet, slow: float, acceptances: int, how_many: int = 1, seed: int = SEED) -> float:
    """Return the share of the slow devices that are called slow."""
    chance, wanted = np.random.default_rng(seed), set(range(how_many))
    hits = (len(called_slow(fleet.measured(chance, slow, how_many)) & wanted) for _ in range(acceptances))
    return sum(hits) / (how_many * acceptances)


def table(fleets: Sequence[Fleet], acceptances: int) -> str:
    """Return a line for each fleet in Markdown."""
    headings = ["devices", "repeats", "between devices", "noise", "alarms", *(f"{slow:.0%} slow" for slow in SLOW)]
    lines = [f"| {' | '.join([*headings, 'two'])} |", "|--:|--:|--:|---|" + "--:|" * (len(SLOW) + 2)]
    for fleet in fleets:
        false = alarms(fleet, acceptances)
        low, high = stats.binomtest(false, acceptances).proportion_ci()
        shares = [found(fleet, slow, acceptances // 4) for slow in SLOW]
        shares += [found(fleet, TWO, acceptances // 4, how_many=2)]
        noise = f"{100 * fleet.noise:.1f} %{', heavy tails' if fleet.heavy else ''}"
        noise += f", disks {100 * fleet.disks:.0f} %" if isinstance(fleet, QuickFleet) else ""
        often = f"{100 * false / acceptances:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
        shown = " | ".join([often, *(f"{share:.0%}" for share in shares)])
        start = f"| {fleet.devices} | {fleet.repeats} | {100 * fleet.between:.1f} % | {noise} |"
        lines.append(f"{start} {shown} |")
    return "\n".join(lines)


def main() -> None:
    """Simulate every fleet."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--acceptances", type=int, default=400, help="acceptances of each fleet of equal devices")
    reader.add_argument("--devices", type=int, nargs="*", default=[4, 16, 128])
    reader.add_argument("--quick", action="store_true", help="quick acceptances of 128 nodes with 8 devices each")
    asked = reader.parse_args()
    print(f"{asked.acceptances} acceptances of each fleet of equal devices, seed {SEED}\n")
    fleets = QUICK if asked.quick else [fleet for fleet in FLEETS if fleet.devices in asked.devices]
    print(table(fleets, asked.acceptances))


if __name__ == "__main__":
    main()
