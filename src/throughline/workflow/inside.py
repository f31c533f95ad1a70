"""Everything that the workflow takes from Snakemake's inside (deployed.py has the rest).

Snakemake does not document these attributes, so another version may lack them. TRIED_WITH is the version that they
were tried with, and tests/workflow/test_snakemake_inside.py tries all of them.
"""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stderr
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from snakemake.common import __version__
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

TRIED_WITH = "9.27.1"

Configuration = tuple[list[str | Path], Mapping[str, Any]]
"""Configuration files, and values that win over them."""

SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
"""The files that Snakemake takes without --snakefile, in this order."""


class Inside:
    """The Snakefile that Snakemake reads at the moment, and the call of Snakemake that it belongs to.

    root: the folder of the Snakefile. is_module: another workflow uses the Snakefile as a module. configuration: files,
    and values that win over them. given: the files and the values that the user named on the command line. deployment:
    the methods of --software-deployment-method. is_deployed: conda or containers bring the environments; then we build
    none, and no job has several. is_main: this process is no job. is_submitted: it is a job that a cluster runs.
    """

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow
        modifier = take(workflow, "modifier")
        _refuse_prefixes(take(modifier, "path_modifier"))
        self.root = Path(str(take(workflow, "current_basedir"))).resolve()
        self.is_module = not take(modifier, "is_main_snakefile")()
        self._rule_name: Callable[[str], str] = take(modifier, "modify_rulename")
        settings = take(workflow, "config_settings")
        self.given: Configuration = (list(take(settings, "configfiles")), dict(take(settings, "config")))
        self.configuration: Configuration = (self.given[0] or ["config.yaml"], self.given[1])
        if self.is_module:
            hands_over = take(modifier, "skip_configfile")
            self.configuration = ([], take(workflow, "config")) if hands_over else ([self.root / "config.yaml"], {})
        self.deployment = {str(method) for method in take(workflow, "deployment_settings.deployment_method")}
        self.is_deployed = bool(self.deployment & {"conda", "apptainer"})
        self.cores: int = take(workflow, "cores")
        self.is_dry_run = bool(take(workflow, "output_settings.dryrun"))
        self.is_main = bool(take(workflow, "is_main_process"))
        self.is_submitted = bool(take(workflow, "remote_exec"))

    @property
    def submits(self) -> bool:
        """True if jobs run on the nodes of a cluster, also in a dry run. Snakemake has read the Snakefile by then."""
        return bool(take(self._workflow, "non_local_exec")) or (self.is_dry_run and self.asks_for_cluster)

    @property
    def asks_for_cluster(self) -> bool:
        """True if the command line or a profile says so. This is known from the beginning."""
        from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

        executor = self._arguments and take(self._arguments, "executor")
        return bool(executor) and not take(ExecutorPluginRegistry().get_plugin(executor), "common_settings.local_exec")

    @cached_property
    def _arguments(self) -> Any:
        """The command line with the profiles; None in a job, and if another program has loaded the Snakefile."""
        from snakemake.cli import parse_args

        if not self.is_main or not sys.argv[0].endswith(("/snakemake", "/snakemake/__main__.py")):
            return None
        with redirect_stderr(io.StringIO()):  # it says once more which profiles it reads
            return parse_args(sys.argv[1:])[1]

    @property
    def named(self) -> list[str]:
        """The words that the user typed as targets, known from the beginning; none in a job."""
        return [os.path.normpath(target) for target in (take(self._arguments, "targets") if self._arguments else ())]

    @property
    def snakefile(self) -> str | None:
        """The file that --snakefile has to name if somebody repeats a part of this call; None if it need not."""
        main = Path(take(self._workflow, "main_snakefile")).resolve()
        usual = next((Path(name).resolve() for name in SNAKEFILES if Path(name).is_file()), None)
        return None if main == usual else os.path.relpath(main)

    def resource(self, rule: str, name: str) -> tuple[Any, Any]:
        """Return what --set-resources and --default-resources say about a resource of a rule; None: nothing."""
        settings = take(self._workflow, "resource_settings")
        special = take(settings, "_parsed_overwrite_resources").get(self._rule_name(rule), {}).get(name)
        general = take(settings, "_parsed_default_resources").get(name)
        return special and take(special, "raw"), general and take(general, "raw")

    def jobs(self, finished: bool = True) -> list[Any]:
        """Return the jobs of this call that have outputs; without those that are finished if `finished` is False."""
        jobs = take(self._workflow, "dag.needrun_jobs")(exclude_finished=not finished)
        return [job for job in jobs if take(job, "output")]

    def count_finished(self) -> None:
        """Let Snakemake register the jobs that ended well after it was interrupted. Otherwise it would make them again.

        Its scheduler registers jobs in a loop, which the interruption ends before the last jobs do.
        """
        scheduler = take(self._workflow, "scheduler")
        if scheduler is not None and not self.submits:
            with take(scheduler, "_lock"):
                take(scheduler, "_finish_jobs")()

    @property
    def target_files(self) -> set[Any]:
        """The files that this call has to make. The graph of jobs has to be there."""
        return set(take(self._workflow, "dag.targetfiles"))

    @property
    def targets(self) -> set[str]:
        """The words that the user typed as targets: rules and files. They are known when all rules have been read."""
        return set(map(str, take(self._workflow, "dag_settings.targets")))

    def unmade(self) -> tuple[list[str], list[str]]:
        """Return the targets of the command line that no rule makes, and the names of the rules that can be targets.

        This is asked when all rules have been read, but before Snakemake looks for what makes the targets.
        """
        rules = list(take(self._workflow, "rules"))
        names = [str(take(rule, "name")) for rule in rules]
        unmade = [
            target
            for target in self.named
            if target not in names
            and not os.path.exists(target)
            and not any(take(rule, "is_producer")(target) for rule in rules)
        ]
        return unmade, [name for name, rule in zip(names, rules, strict=True) if not take(rule, "has_wildcards")()]

    @property
    def own_output(self) -> logging.Handler | None:
        """The handler that shows Snakemake's own output; None if our console may not take its place.

        It stays in a dry run, in jobs, in a module (which has no plan), with another logger, with options that ask for
        more of Snakemake's output, and if the user asks for it (THROUGHLINE_CONSOLE=snakemake).
        """
        settings = take(self._workflow, "output_settings")
        asked = any(take(settings, name) for name in ("dryrun", "verbose", "debug_dag", "printshellcmds"))
        if asked or os.environ.get("THROUGHLINE_CONSOLE") == "snakemake":
            return None
        if self.is_module or not self.is_main:
            return None
        return next((handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"), None)

    @property
    def is_quiet(self) -> bool:
        """True if the user wants no output but errors (`--quiet all`)."""
        return "ALL" in {mode.name for mode in take(self._workflow, "output_settings.quiet") or ()}


def look_behind_ancient_files() -> None:
    """Let Snakemake ask each job behind an `ancient` file whether it has a reason of its own to run.

    If a job runs, Snakemake asks no job behind it, because the jobs that it leads to will run as well. But an `ancient`
    file leads to none. So if data were made again, a run without a record was not made, a changed record was not
    noticed, and the call ended as if all were well (https://github.com/snakemake/snakemake/issues/4166).
    """
    from snakemake.dag import DAG

    whole = take(DAG, "bfs")
    if hasattr(whole, "whole"):
        return

    def bfs(self: Any, direction: Any, *jobs: Any, **names: Any) -> Iterator[Any]:
        behind = direction is take(self, "depending")
        yield from whole(self, _LedTo(direction) if behind else direction, *jobs, **names)

    bfs.whole = whole  # type: ignore[attr-defined]
    DAG.bfs = bfs


class _LedTo:
    """Map a job to the jobs that have to run if it runs.

    These are not the jobs for which all of its files are ancient, and there.
    """

    def __init__(self, depending: Mapping[Any, Mapping[Any, Iterable[Any]]]) -> None:
        self._depending = depending

    def __getitem__(self, job: Any) -> dict[Any, Iterable[Any]]:
        def leads(files: Iterable[Any]) -> bool:
            return not all(file.is_ancient and os.path.exists(file) for file in files)

        return {other: files for other, files in self._depending[job].items() if leads(files)}


def take(of: Any, path: str) -> Any:
    """Return an attribute of Snakemake. WorkflowError if this version of Snakemake does not have it."""
    try:
        return reduce(getattr, path.split("."), of)
    except AttributeError as error:
        raise WorkflowError(
            f"Snakemake {__version__} has no {type(of).__name__}.{path} ({error})\n"
            f"  why:  Throughline was tried with Snakemake {TRIED_WITH} (src/throughline/workflow/inside.py)\n"
            f"  next: pip install snakemake=={TRIED_WITH}"
        ) from None


def _refuse_prefixes(paths: Any) -> None:
    """Raise WorkflowError if a module statement moves our files: commands and records have their names as well."""
    while paths is not None:
        if take(paths, "prefix") or take(paths, "modifies_prefixes"):
            raise WorkflowError(
                "Throughline cannot be used as a module with prefix or replace_prefix\n"
                "  why:  its records name its files as data/... and results/...\n"
                "  next: remove the line; the names of folders below data/ and results/ are in its configuration"
            )
        paths = take(paths, "inner_modifier")
