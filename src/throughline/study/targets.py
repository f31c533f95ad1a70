"""Look up what stands behind a target: a run, a summary, an equivalence check, a search or a convergence check.

The wildcards of the target select it. If the configuration does not ask for such a target, a UserError says which
targets it does ask for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from throughline import spelling
from throughline.files import UserError
from throughline.grouping import grouped
from throughline.ratios import MARGIN
from throughline.spec import RunSpec, canonical
from throughline.study.config import Config, block_name
from throughline.study.presets import of_a_preset
from throughline.study.runs import manifest, switch, without_accumulation

RUN = "results/{benchmark}/bz{batch}_{precision}/{framework}/{topology}/run{repeat}"
CELL = "results/{benchmark}/bz{batch}_{precision}.json"
SEARCH = "results/{benchmark}/max_{quantity}_{precision}.json"
CHECK = "results/{benchmark}/convergence_bz{batch}_{precision}_{framework}_{topology}"
PREDICTIONS = "results/{benchmark}/predictions.json"
T = TypeVar("T")
LISTED_AT_MOST = 8
"""Largest number of targets that an error lists. Of more, it names the most similar ones."""


def pick(table: Mapping[str, T], key: str, what: str = "{}", next_step: str | None = None) -> T:
    """Return `table[key]`. Raises UserError with the keys of the table if there is no such key.

    `what` is the name of the target in the error; its `{}` becomes the key.
    """
    if key not in table:
        raise absent(what.format(key), table, next_step=next_step, word=key)
    return table[key]


def absent(
    target: str, there: Iterable[str], which: str = "", next_step: str | None = None, word: str | None = None
) -> UserError:
    """Return the error for a target that the configuration does not ask for.

    `there` are the targets that it does ask for; `which` is a remark about them; `word` is the name among the words of
    `target`.
    """
    names, rest = list(there), ""
    if len(names) > LISTED_AT_MOST:
        near = spelling.similar(word or target, names) or names[: spelling.SUGGESTED]
        names, rest = near, f" and {len(names) - len(near)} more"
    is_long = any("/" in name for name in names)
    listed = ("\n  " + "\n  ".join(names)) if is_long else " " + (", ".join(names) or "none")
    return UserError(
        f"{target} is not in the configuration. It holds{which}:{listed}{rest}",
        next_step=next_step or of_a_preset(word or target),
    )


class Targets:
    """Everything that a configuration asks for, by file name.

    `equivalence_checks` maps a benchmark to its specifications. `searches` maps a file to its specifications, and
    `checks` a file to its specification. The packages that make these files provide the three maps. `given_up` maps the
    records of failed repeats that no summary waits for to why they failed.
    """

    def __init__(
        self,
        config: Config,
        specs: Sequence[RunSpec],
        equivalence_checks: Mapping[str, Sequence[RunSpec]],
        searches: Mapping[str, Sequence[RunSpec]],
        checks: Mapping[str, RunSpec],
        given_up: Mapping[str, str] | None = None,
    ) -> None:
        self.config, self.equivalence_checks, self.searches, self.checks = config, equivalence_checks, searches, checks
        self.given_up = given_up or {}
        self.specs = {spec.record: spec for spec in specs}
        self.awaited = [record for record in self.specs if record not in self.given_up]
        """The records that summaries wait for."""
        self.summaries = grouped(self.awaited, lambda record: self.specs[record].summary)
        self.by_benchmark = grouped(self.summaries, lambda summary: summary.split("/")[1])
        self.to_predict = {
            name: {"topologies": predicted}
            for name in self.by_benchmark
            if "__" not in name and (predicted := config.block(name).predicted)
        }
        """Map a benchmark to what its predictions are asked for (report/analysis/predictions.py's `Asked`)."""
        self._priorities = dict(zip(self.specs, range(len(self.specs), 0, -1), strict=True))

    def run(self, **wildcards: str) -> RunSpec:
        """Return the specification of a record."""
        record = RUN.format(**wildcards) + ".json"
        if record not in self.specs:
            cells = sorted({spec.record.rpartition("/")[0] for spec in self.specs.values()})
            repeats = max((spec.repeat for spec in self.specs.values()), default=0)
            raise absent(record, cells, f", with run1 to run{repeats}", word=record)
        return self.specs[record]

    def priority(self, **wildcards: str) -> int:
        """Return a run's priority, which is higher the earlier the run stands in the order of all runs.

        In this order the runs of one repeat are neighbours, so that a slow hour affects all configurations alike.
        """
        return self._priorities[self.run(**wildcards).record]

    def records(self, **wildcards: str) -> list[str]:
        """Return the records that a summary is made of."""
        return pick(self.summaries, CELL.format(**wildcards))

    def summaries_of(self, benchmark: str) -> list[str]:
        """Return the summaries of a benchmark."""
        return pick(self.by_benchmark, benchmark, "benchmark {}")

    def extras(self, benchmark: str) -> list[str]:
        """Return the summaries of a benchmark's derived runs, which show where the time goes and how large noise is."""
        names = [f"{benchmark}__{extra}" for extra in ("no_gradient_sync", "synthetic", "checkpoint", "aa")]
        return [summary for name in names for summary in self.by_benchmark.get(name, ())]

    def compared(self, benchmark: str) -> list[str]:
        """Return the other summaries that are needed to judge the pairs of a benchmark: those of its block, of the
        blocks that lack one option that it has switched on, and of the block without accumulation if it has a global
        batch.
        """
        mine = self._first(benchmark)
        others = {name: self._first(name) for name in self.by_benchmark}
        partners = [name for name, other in others.items() if switch(other, mine) or without_accumulation(mine, other)]
        blocks = {block_name(name) for name in (benchmark, *partners)}
        names = [name for name in self.by_benchmark if name != benchmark and block_name(name) in blocks]
        return [summary for name in names for summary in self.by_benchmark[name]]

    def _first(self, benchmark: str) -> RunSpec:
        return self.specs[self.summaries[self.summaries_of(benchmark)[0]][0]]

    def predictions(self, benchmark: str) -> list[str]:
        """Return the file with a benchmark's predictions, if the configuration asks for some."""
        self.summaries_of(benchmark)  # an unknown benchmark is an error
        return [PREDICTIONS.format(benchmark=benchmark)] if benchmark in self.to_predict else []

    @property
    def every_prediction(self) -> list[str]:
        """The files of all predictions."""
        return [PREDICTIONS.format(benchmark=benchmark) for benchmark in self.to_predict]

    def predicted(self, benchmark: str) -> dict[str, Any]:
        """Return what a benchmark's predictions are asked for. UserError if nothing is to be predicted."""
        next_step = "set runs.predict, such as [4n8g, 16n8g]"
        return pick(self.to_predict, benchmark, "predictions of {}", next_step)

    def some_predictions(self) -> list[str]:
        """Return all predictions, with the tables and plots that show them. UserError if there are none."""
        if not self.to_predict:
            raise UserError(
                "the configuration asks for no prediction",
                why="no block has topologies in `predict` that it does not measure",
                next_step="name some: --config 'runs={predict: [4n8g, 16n8g]}'",
            )
        shown = [f"results/{name}/{kind}" for name in self.to_predict for kind in ("tables", "plots")]
        return [*self.every_prediction, *shown]

    def equivalence_check(self, benchmark: str) -> Sequence[RunSpec]:
        """Return the specifications that a benchmark's equivalence check runs."""
        target = "an equivalence check for {}, which compares no frameworks and splits no model over ranks,"
        return pick(self.equivalence_checks, benchmark, target)

    def search(self, **wildcards: str) -> Sequence[RunSpec]:
        """Return the specifications of a search for the largest batch or another largest quantity.

        There is one specification for each framework.
        """
        extras = f"benchmarks.{wildcards['benchmark']}.extras"
        return pick(self.searches, SEARCH.format(**wildcards), next_step=f"add max_{wildcards['quantity']} to {extras}")

    def check(self, **wildcards: str) -> RunSpec:
        """Return the specification of a convergence check."""
        block = f"benchmarks.{wildcards['benchmark']}"
        return pick(self.checks, CHECK.format(**wildcards) + ".json", next_step=f"set {block}.convergence")

    def begin(self, **wildcards: str) -> list[str]:
        """Return the curve of the check whose last weights this check begins with; nothing for random weights."""
        spec = self.check(**wildcards)
        settings = self.config.block(spec.benchmark).convergence
        first = settings and settings.begin_from, spec.framework, spec.precision
        return [
            f"{file.removesuffix('.json')}/curve.json"
            for file, other in self.checks.items()
            if (other.benchmark, other.framework, other.precision) == first
        ]

    def against(self, **wildcards: str) -> list[str]:
        """Return the file with the expected curve of a convergence check, if the configuration names one."""
        settings = self.config.block(self.check(**wildcards).benchmark).convergence
        return [settings.against] if settings and settings.against else []

    def results(self) -> list[str]:
        """Return what the report shows and is made of, except what belongs to no benchmark."""
        of_benchmarks = [f"results/{name}/{folder}" for name in self.by_benchmark for folder in ("tables", "plots")]
        equivalence = [f"results/{name}/equivalence.json" for name in self.equivalence_checks]
        return [
            *(*self.summaries, *self.awaited, *of_benchmarks, *equivalence),
            *(*self.searches, *self.checks, *self.every_prediction),
        ]

    def manifests(self) -> list[str]:
        """Return the manifests that the runs read."""
        return sorted({made for spec in self.specs.values() if (made := manifest(spec))})

    def summary_options(self, **wildcards: str) -> list[str]:
        """Return the arguments, apart from the records, of the command that makes a summary."""
        spec = self.specs[self.records(**wildcards)[0]]
        block, terms = self.config.block(spec.benchmark), self._terms(spec.benchmark)
        remarks = [f"--remarks={block.remarks}"] if block.remarks else []
        strict = ["--strict"] if block.strict else []
        return ["--spec", spec.canonical, "--asked", str(block.repeats), "--terms", canonical(terms), *remarks, *strict]

    def _terms(self, benchmark: str) -> dict[str, Any]:
        """Return the goals, prices, margin and failed repeats that a benchmark's summaries are judged by."""
        block = self.config.block(benchmark)
        terms: dict[str, Any] = {
            "goals": None if "__" in benchmark else self.config.goals.model_dump(),
            "prices": {name: price.model_dump() for name, price in self.config.prices.items()},
            "total_samples": block.task,
        }
        if block.margin != MARGIN:  # only then: a parameter that changes makes finished summaries again
            terms["margin"] = block.margin
        if block.mtbf_hours is not None:
            terms["mtbf_hours"] = block.mtbf_hours
        if failed := {file: why for file, why in self.given_up.items() if file.split("/")[1] == benchmark}:
            terms["failed"] = failed
        return terms

    def made(self) -> dict[str, Any]:
        """Map each benchmark to what its summaries and tables are made with, other than the records.

        These are the values of archive/contents.py's `Made`, as JSON values.
        """
        return {
            benchmark: {
                "repeats": self.config.block(benchmark).repeats,
                "terms": self._terms(benchmark),
                "remarks": self.config.block(benchmark).remarks,
                "summaries": summaries,
                "compared": self.compared(benchmark),
                "equivalence": benchmark in self.equivalence_checks,
                **({"predict": self.to_predict[benchmark]} if benchmark in self.to_predict else {}),
            }
            for benchmark, summaries in self.by_benchmark.items()
        }
