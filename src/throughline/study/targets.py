"""From a target's wildcards to what the configuration asks for: a run, a summary, a proof, a search, a check.

A target that the configuration does not ask for is a UserError that says what it does ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from throughline.files import UserError
from throughline.study.config import Config
from throughline.study.runs import RunSpec
from throughline.study.section import canonical

RUN = "results/{benchmark}/bz{batch}_{precision}/{framework}/{topology}/run{repeat}"
CELL = "results/{benchmark}/bz{batch}_{precision}.json"
SEARCH = "results/{benchmark}/max_batch_{precision}.json"
CHECK = "results/{benchmark}/convergence_bz{batch}_{precision}_{framework}_{topology}"
T = TypeVar("T")


def pick(table: Mapping[str, T], key: str, what: str = "{}", next_step: str | None = None) -> T:
    """What `table` has under `key`; UserError with the keys there are. `what` is how the target is called."""
    if key not in table:
        raise absent(what.format(key), table, next_step=next_step)
    return table[key]


def absent(target: str, there: Iterable[str], which: str = "", next_step: str | None = None) -> UserError:
    """What is said of a target that the configuration does not ask for; `which` says more of those it does ask for."""
    names = list(there)
    long = any("/" in name for name in names)
    listed = ("\n  " + "\n  ".join(names)) if long else " " + (", ".join(names) or "none")
    return UserError(f"{target} is not in the configuration. It holds{which}:{listed}", next_step=next_step)


class Targets:
    """All that a configuration asks for, by the names of files.

    `proofs`, `searches` and `checks` are the requests of the rooms that make them: benchmark or file -> specifications.
    """

    def __init__(
        self,
        config: Config,
        specs: Sequence[RunSpec],
        proofs: Mapping[str, Sequence[RunSpec]],
        searches: Mapping[str, Sequence[RunSpec]],
        checks: Mapping[str, RunSpec],
    ) -> None:
        self.config, self.proofs, self.searches, self.checks = config, proofs, searches, checks
        self.specs = {spec.record: spec for spec in specs}
        self.summaries: dict[str, list[str]] = {}
        for spec in specs:
            self.summaries.setdefault(spec.summary, []).append(spec.record)

    def run(self, **wildcards: str) -> RunSpec:
        """The specification behind a record."""
        record = RUN.format(**wildcards) + ".json"
        if record not in self.specs:
            cells = sorted({spec.record.rpartition("/")[0] for spec in self.specs.values()})
            repeats = max((spec.repeat for spec in self.specs.values()), default=0)
            raise absent(record, cells, f", with run1 to run{repeats}")
        return self.specs[record]

    def priority(self, **wildcards: str) -> int:
        """A run's priority: those of one repeat stand together, so that a slow hour hits all configurations alike."""
        return len(self.specs) - self._places[self.run(**wildcards).record]

    @property
    def benchmarks(self) -> list[str]:
        """The names of the benchmarks, derived ones too."""
        return list(self._by_benchmark)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {record: place for place, record in enumerate(self.specs)}

    def records(self, **wildcards: str) -> list[str]:
        """The records that a summary is made of."""
        return pick(self.summaries, CELL.format(**wildcards))

    def summaries_of(self, benchmark: str) -> list[str]:
        """The summaries of a benchmark."""
        return pick(self._by_benchmark, benchmark, "benchmark {}")

    def extras(self, benchmark: str) -> list[str]:
        """The summaries of a benchmark's derived runs: where its time goes, and what is noise."""
        names = [f"{benchmark}__{extra}" for extra in ("noexchange", "synthetic", "aa")]
        return [summary for name in names for summary in self._by_benchmark.get(name, ())]

    @cached_property
    def _by_benchmark(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for summary in self.summaries:
            found.setdefault(summary.split("/")[1], []).append(summary)
        return found

    def proof(self, benchmark: str) -> Sequence[RunSpec]:
        """What a benchmark's equivalence is proven on."""
        target = "a proof for {}, which compares no frameworks and splits no model over ranks,"
        return pick(self.proofs, benchmark, target)

    def search(self, **wildcards: str) -> Sequence[RunSpec]:
        """The specifications of a search for the largest batch, one for each framework."""
        extras = f"benchmarks.{wildcards['benchmark']}.extras"
        return pick(self.searches, SEARCH.format(**wildcards), next_step=f"add max_batch to {extras}")

    def check(self, **wildcards: str) -> RunSpec:
        """The specification of a convergence check."""
        block = f"benchmarks.{wildcards['benchmark']}"
        return pick(self.checks, CHECK.format(**wildcards) + ".json", next_step=f"set {block}.convergence")

    def manifests(self) -> list[str]:
        """The manifests that the runs read."""
        return sorted({spec.manifest for spec in self.specs.values() if spec.manifest})

    def summary_options(self, benchmark: str) -> list[str]:
        """What the command that makes a summary has to know beside its records."""
        block = self.config.block(benchmark)
        terms = {
            "goals": None if "__" in benchmark else self.config.goals.model_dump(),
            "prices": {name: price.model_dump() for name, price in self.config.prices.items()},
            "task_samples": block.task_samples,
        }
        remarks = [f"--remarks={block.remarks}"] if block.remarks else []
        strict = ["--strict"] if block.strict else []
        return ["--asked", str(block.repeats), "--terms", canonical(terms), *remarks, *strict]
