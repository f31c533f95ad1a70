"""Everything that one call of the workflow asks for: its configuration, its runs, and the files of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import records, workloads
from throughline.checks import convergence_check, equivalence, max_batch
from throughline.corpus.shards.finished import finished_shards
from throughline.corpus.targets import CorpusTargets
from throughline.datasets.targets import ClicksTargets, FolderTargets
from throughline.files import UserError
from throughline.spec import RunSpec
from throughline.study import runs
from throughline.study.benchmark import Benchmark
from throughline.study.config import Config, load
from throughline.study.section import ConfigPaths
from throughline.study.targets import Targets

OTHERS = ("results/report.html", "results/compare.json", "results/compare.html", "results/archive.zip")
"""The results that belong to no benchmark."""


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
        return [*self.targets.files(), *self.corpus.files(), *self.clicks.files(), *pictures, *imports, *OTHERS]


def read(
    paths: Sequence[str | Path],
    values: Mapping[str, Any],
    workflow: Path,
    apart: bool,
    say: Callable[[str], object],
    auto_topologies: Callable[[Benchmark], list[str]],
) -> WorkflowCall:
    """Read and check the configuration; UserError with one line per mistake.

    values: what wins over the files (`load`). workflow: the folder of the workflow, which may be another one than the
    working directory. apart: no job has the environments of several frameworks, so no job can compare them. say: gets
    a line for each relative path that does not lead into the working directory. auto_topologies: what `topologies:
    auto` of a block means.
    """
    config_paths = ConfigPaths(workflow)
    config = load(paths, values, config_paths, auto_topologies)
    for remark in config_paths.remarks():
        say(remark)
    specs = runs.expand(config)
    records.leave_newer({spec.summary for spec in specs})
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
            proofs={} if apart else equivalence.requests(specs),
            searches={} if apart else max_batch.requests(config, specs),
            checks=convergence_check.requests(config, specs),
        ),
        CorpusTargets(config.corpus, folders, finished, needed),
        {room: FolderTargets(section, room, ".tar", ".idx") for room, section in config.pictures().items()},
        ClicksTargets(config.clicks),
    )


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
