"""How often the report's verdicts are wrong, and how much they decide: simulated reports, judged by the report's code.

`python benchmarks/verdicts.py` prints a table. Each line is a kind of noise; each report has 8 frameworks with 5
interleaved repeats, of which half are 15 % faster. `wrong` is the share of reports that say anything false: equal
frameworks told apart, unequal ones the wrong way round or without a difference, a star for one of the equals. Its
last line is the worst line of the table with repeats that do not depend on each other.
"""

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from throughline.records import CellRecord
from throughline.report.analysis import judged_pairs
from throughline.report.analysis.cells import Group
from throughline.report.analysis.summary import without_runs
from throughline.spec import Topology, example
from throughline.study.runs import read_spec
from throughline.workloads import of

FRAMEWORKS, REPEATS, GAIN, NOISE, SEED = 8, 5, 0.15, 0.02, 1
PLACE = Topology.parse("1n1g")


@dataclass(frozen=True)
class Kind:
    """A kind of noise. All effects are standard deviations of logarithms.

    draw: a value with mean 0 and deviation 1, of a framework and a repeat; noise: of each repeat; hour: of each round,
    which all frameworks share; fixed: of each measurement, the same in all of its repeats; again: how many A/A runs of
    every framework there are; rounds: whether the repeats are interleaved; gain: by how much half of the frameworks are
    faster; independent: whether the tests can be right at all.
    """

    name: str
    draw: Callable[[random.Random, int], float] = lambda chance, _: chance.gauss(0, 1)
    noise: float = NOISE
    hour: float = 0.0
    fixed: float = 0.0
    again: int = 1
    rounds: bool = True
    gain: float = GAIN
    independent: bool = True


def heavy(chance: random.Random, _: int) -> float:
    """Return a value of Student's t with 3 degrees of freedom."""
    return chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2) / 3) / math.sqrt(3)


def skewed(chance: random.Random, _: int) -> float:
    """Return a value of an exponential distribution whose long tail is slow."""
    return 1 - chance.expovariate(1)


def unequal(chance: random.Random, framework: int) -> float:
    """Return a normal value; every second framework is three times as noisy as the others."""
    return chance.gauss(0, 1) * (1.5 if framework % 2 else 0.5)


def skewed_unequal(chance: random.Random, framework: int) -> float:
    """Return a skewed value; every second framework is three times as noisy as the others."""
    return skewed(chance, framework) * (1.5 if framework % 2 else 0.5)


def outliers(chance: random.Random, _: int) -> float:
    """Return a normal value; 1 in 20 is five deviations slow."""
    return chance.gauss(0, 1) - (5 if chance.random() < 0.05 else 0)


KINDS = (
    Kind("normal"),
    Kind("normal, without A/A runs", again=0),
    Kind("normal, not in rounds", rounds=False),
    Kind("heavy tails", heavy),
    Kind("skewed", skewed),
    Kind("unequal deviations", unequal),
    Kind("skewed and unequal", skewed_unequal),
    Kind("the same, without A/A runs", skewed_unequal, again=0),
    Kind("one in 20 is slow", outliers),
    Kind("a slow hour is shared, 10 %", hour=0.1),
    Kind("such an hour, not in rounds", hour=0.1, rounds=False),
    Kind("all are equal", gain=0.0),
    Kind("fixed effects of 1 %, noise 0.5 %", noise=0.005, fixed=0.01, independent=False),
    Kind("these effects, without A/A runs", noise=0.005, fixed=0.01, again=0, independent=False),
)


@dataclass(frozen=True)
class Outcome:
    """What the reports of one kind say: shares of reports that are wrong, and of pairs that are decided.

    equal: the share of the equal pairs of which the report says that there is no difference.
    """

    kind: Kind
    wrong: float
    decided: float
    equal: float


def simulate(kind: Kind, reports: int, seed: int = SEED) -> Outcome:
    """Make and judge reports. The seed decides every value."""
    chance = random.Random(seed)
    wrong, told, unlike, same, alike = 0, 0, 0, 0, 0
    for _ in range(reports):
        speeds = [100 * (1 + kind.gain * (framework >= FRAMEWORKS // 2)) for framework in range(FRAMEWORKS)]
        groups = _groups(kind, speeds, chance)
        pairs = judged_pairs.judge(groups[:1], groups)
        false = 0
        for pair in pairs:
            base, other = (speeds[int(cell.framework.removeprefix("f"))] for cell in (pair.base, pair.other))
            right = "faster" if other > base else "slower"
            if base == other:
                false += pair.verdict in ("faster", "slower")
                alike, same = alike + 1, same + (pair.verdict == "no difference")
            else:
                false += pair.verdict not in (right, "inconclusive")
                unlike, told = unlike + 1, told + (pair.verdict == right)
        false += judged_pairs.leader(groups[:1], pairs) is not None  # half of the frameworks are equally fast
        wrong += false > 0
    return Outcome(kind, wrong / reports, told / unlike if unlike else math.nan, same / alike if alike else math.nan)


def _groups(kind: Kind, speeds: Sequence[float], chance: random.Random) -> list[Group]:
    """Return a benchmark and its A/A runs, as a report has them."""
    hours = [chance.gauss(0, kind.hour) for _ in range(REPEATS)]
    groups = []
    for measured in range(1 + kind.again):
        cells: dict[str, dict[str, CellRecord]] = {}
        for framework, speed in enumerate(speeds):
            fixed = chance.gauss(0, kind.fixed)
            own = hours if kind.rounds else [chance.gauss(0, kind.hour) for _ in range(REPEATS)]
            logs = [fixed + hour + kind.noise * kind.draw(chance, framework) for hour in own]
            cell = _cell([speed * math.exp(log) for log in logs], kind.rounds, framework)
            cells[f"f{framework}"] = {str(PLACE): cell}
        name = "bench" + "__aa" * measured
        summary = without_runs(
            read_spec(json.dumps(example("matmul", of("matmul").parameters(), benchmark=name).values())),
            frameworks=cells,
        )
        groups.append(Group(summary, verdicts=dict.fromkeys(cells, "equal")))
    return groups


def _cell(values: list[float], rounds: bool, framework: int) -> CellRecord:
    """Return a cell with what a verdict reads. Without rounds, each framework runs all of its repeats in a row."""
    minutes = [repeat if rounds else framework * REPEATS + repeat for repeat in range(REPEATS)]
    starts = [f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z" for minute in minutes]
    read: dict[str, Any] = {
        "values": values, "n": REPEATS, "n_ok": REPEATS, "median_speed": statistics.median(values),
        "statuses": {"ok": REPEATS}, "simulated": False, "ran_in": {},
        "starts": starts, "started": starts[0], "ended": starts[-1],
    }  # fmt: skip
    return CellRecord.model_construct(**read)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes in Markdown."""
    lines = [
        "| noise of the repeats | wrong reports | 15 % decided | equal pairs: no difference |",
        "|---|--:|--:|--:|",
    ]
    for one in outcomes:
        shares = [one.wrong, one.decided, one.equal]
        shown = ("" if math.isnan(share) else f"{100 * share:.1f} %" for share in shares)
        lines.append(f"| {one.kind.name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def last_line(outcomes: Sequence[Outcome]) -> str:
    """Return the worst share of wrong reports, and what is decided with normal noise."""
    worst = max(one.wrong for one in outcomes if one.kind.independent)
    first = next(one for one in outcomes if one.kind is KINDS[0])
    return (
        f"wrong {100 * worst:.1f} % of reports (5 % allowed), decided {100 * first.decided:.0f} % of 15 % differences "
        "at 2 % noise"
    )


def main() -> None:
    """Simulate every kind of noise."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--reports", type=int, default=1000, help="reports of each kind")
    reader.add_argument("--seed", type=int, default=SEED)
    asked = reader.parse_args()
    outcomes = [simulate(kind, asked.reports, asked.seed) for kind in KINDS]
    print(f"{asked.reports} reports of each kind: {FRAMEWORKS} frameworks, {REPEATS} repeats, seed {asked.seed}\n")
    print(table(outcomes), end="\n\n")
    print(last_line(outcomes))


if __name__ == "__main__":
    main()
