"""Everything that one call of Snakemake asks for: its configuration, its runs, and the files of both."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from throughline import files, handover, records, spelling, workloads
from throughline.checks import convergence_check, equivalence, max_batch
from throughline.console.console import NO_RECORD, failure_cause, log_lines
from throughline.corpus.targets import CorpusTargets, finished_shards
from throughline.datasets.targets import ClicksTargets, FolderTargets
from throughline.files import UserError
from throughline.grouping import grouped
from throughline.installation import choose
from throughline.spec import RunSpec
from throughline.study import runs
from throughline.study.benchmark import Benchmark
from throughline.study.config import Config, load
from throughline.study.presets import of_a_preset
from throughline.study.section import ConfigPaths
from throughline.study.targets import Targets
from throughline.workflow.inside import Inside

OTHERS = ("results/report.html", "results/compare.json", "results/compare.html", "results/archive.zip")
"""The results that belong to no benchmark."""
LIST = "docs/reference/outputs.md lists the files, and snakemake --list-target-rules the other targets"
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class WorkflowCall:
    config: Config
    specs: Sequence[RunSpec]
    targets: Targets
    corpus: CorpusTargets
    pictures: Mapping[str, FolderTargets]
    clicks: ClicksTargets

    def files(self) -> list[str]:
        """Return the files that a user may ask for by name: results, and the data that they are made of."""
        pictures = [file for targets in self.pictures.values() for file in targets.files()]
        imports = [f"results/{name}/imported.json" for name in self.config.imports]
        return [*self.targets.results(), *self.corpus.files(), *self.clicks.files(), *pictures, *imports, *OTHERS]

    def data(self) -> list[str]:
        """Return the data that the runs read."""
        clicks = self.clicks.files()
        return [
            *(self.corpus.files_of_runs() if self.config.reads("corpus") else []),
            *(file for room, made in self.pictures.items() if self.config.folders(room) for file in made.files()),
            *(clicks if clicks[0] in self.targets.manifests() else []),
        ]

    def check_targets(self, unmade: Sequence[str], rules: Sequence[str]) -> None:
        """Raise UserError, with the most similar targets, if nothing makes a target that the user named.

        unmade, rules: see Inside.unmade.
        """
        for target in unmade:
            near = self.targets.by_benchmark.get(target) or spelling.similar(target, [*rules, *self.files()], 0.6)
            meant = f"did you mean {spelling.listed(near)}? " if near else ""
            raise UserError(
                f"nothing makes {target}",
                why="neither the workflow nor this configuration has a target of that name",
                next_step=of_a_preset(target) or meant + LIST,
            )


def or_exit(function: Callable[..., Answer], *values: Any, **names: Any) -> Answer:
    """Return what a function of the library returns. If it raises UserError, end Snakemake with that message alone.

    Snakemake adds its rule, wildcards and lines of our files to any other exception.
    """
    try:
        return function(*values, **names)
    except UserError as error:
        sys.exit(f"error: {error}")


def read(
    paths: Sequence[str | Path],
    values: Mapping[str, Any],
    workflow: Path,
    auto_topologies: Callable[[Benchmark], list[str]],
    skipped: Callable[[Mapping[str, Benchmark]], Collection[str]] = lambda _: (),
    apart: bool = False,
    say: Callable[[str], object] = print,
) -> WorkflowCall:
    """Read and check the configuration; UserError with one line per mistake.

    values: what wins over the files (`load`). workflow: the folder of the workflow, which may be another one than the
    working directory. auto_topologies: what `topologies: auto` of a block means. skipped: says which blocks are not for
    the machine. apart: no job has the environments of several frameworks, so no job can compare them. say: gets a line
    for each relative path that does not lead into the working directory, and for each failed repeat that is left out.
    """
    config_paths = ConfigPaths(workflow)
    config = load(paths, values, config_paths, auto_topologies, skipped)
    for remark in config_paths.remarks():
        say(remark)
    specs = runs.expand(config)
    records.leave_newer({spec.summary for spec in specs})
    failures = given_up(config, specs)
    for record, why in failures.items():
        say(f"runs.enough: {record} failed and is left out ({why}); to try it again: snakemake {record}")
    read = config.folders("corpus")
    needed = config.corpus.needed(read)
    finished = finished_shards(config.corpus, needed)
    if finished is not None:
        _held_out(config, finished)
    folders = [folder for folder in config.corpus.made(read) if finished is None or folder in finished]
    return WorkflowCall(
        config,
        specs,
        Targets(
            config,
            specs,
            equivalence_checks={} if apart else equivalence.requests(specs),
            searches={} if apart else max_batch.requests(config, specs),
            checks=convergence_check.requests(config, specs),
            given_up=failures,
        ),
        CorpusTargets(config.corpus, folders, finished, needed),
        {room: FolderTargets(section, room, ".tar", ".idx") for room, section in config.pictures().items()},
        ClicksTargets(config.clicks),
    )


def given_up(config: Config, specs: Iterable[RunSpec]) -> dict[str, str]:
    """Map the failed repeats that no summary waits for to why they failed: those of cells with enough other repeats.

    A cell has enough if at least runs.enough of its repeats have a record of the present configuration, and every other
    one was tried and failed. A repeat that was stopped from outside, or not tried yet, can still be made.
    """
    some = (spec for spec in specs if config.block(spec.benchmark).enough)
    found: dict[str, str] = {}
    for repeats in grouped(some, lambda spec: (spec.cell, spec.framework, str(spec.topology))).values():
        absent = {run.record: _failure(Path(run.record)) for run in repeats if not Path(run.record).is_file()}
        enough = config.block(repeats[0].benchmark).enough or 0
        if absent and len(repeats) - len(absent) >= enough and all(absent.values()):
            there = [records.stored_run(Path(run.record)) for run in repeats if run.record not in absent]
            wanted = {run.canonical for run in repeats}
            if sum(run is not None and run.spec.canonical in wanted for run in there) >= enough:
                found |= {record: why for record, why in absent.items() if why}
    return found


def _failure(record: Path) -> str | None:
    """Return the first line of the error at the end of a run's log; None if the run did not fail."""
    log = record.with_suffix(".log")
    lines = log_lines(log)
    if [line for line in lines if line.startswith("outcome: ")][-1:] != [NO_RECORD]:
        return None
    why = "no reason is in its log" if lines[-1] == NO_RECORD else failure_cause([log]).splitlines()[0]
    return why.removeprefix(f"{record}: ")


def _held_out(config: Config, finished: Mapping[str, Mapping[str, Path]]) -> None:
    """Raise UserError if a convergence check reads finished shards of which none is held out."""
    for name, block in config.benchmarks.items():
        workload = workloads.of(block.model)
        if block.convergence is None or workload.data != "corpus":
            continue
        folder = workload.folder(config.parameters_of(block))
        if not any(shard.startswith("test_") for shard in finished[folder]):
            raise UserError(
                f"benchmarks.{name}.convergence looks at held-out text, and corpus.dump.shards has none for {folder}",
                why="the name of no file there says that it is for a test",
                next_step="put `test` into the name of a file that training shall not read; or leave the check out: "
                f"benchmarks: {{{name}: {{convergence: null}}}}, in a second configuration file",
            )


def hand_over(config: Config, inside: Inside) -> None:
    """Hand the jobs of this call what decides no result. A submitted job keeps what it has inherited."""
    if not inside.is_main and handover.get("configuration"):
        return
    blocks = config.benchmarks.items()
    handover.add(
        hosts={name: block.hosts for name, block in blocks if isinstance(block.hosts, list)},
        checkpoints={name: block.checkpoints for name, block in blocks if block.checkpoints},
        strict=[name for name, block in blocks if block.strict],
        programs={name: section.places() for name, section in config.programs.items()},
        models=config.model_files(),
        configuration=runs.packed(config),
        started_with=files.started_with(*inside.given, inside.snakefile),
        gpu=choose.wanted(),
        cards=choose.packed(choose.facts()),
        contact=config.corpus.contact,
        mirrors=config.corpus.mirrors,
    )
