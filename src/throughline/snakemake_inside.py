"""Everything that the workflow takes from Snakemake's inside.

Snakemake does not document these attributes, so another version may lack them. TRIED_WITH is the version that they
were tried with, and tests/workflow/test_snakemake_inside.py tries all of them. This file imports the standard library
and Snakemake only, because workflow/Snakefile loads it before the library is there.
"""

import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from snakemake.common import __version__
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

TRIED_WITH = "9.27.1"
Answer = TypeVar("Answer")

Configuration = tuple[list[str | Path], Mapping[str, Any]]
"""Configuration files, and values that win over them."""

SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
"""The files that Snakemake takes without --snakefile, in this order."""


class Inside:
    """The Snakefile that Snakemake reads at the moment, and the call of Snakemake that it belongs to.

    root: the folder of the Snakefile. is_module: another workflow uses the Snakefile as a module. configuration: files,
    and values that win over them. given: the files and the values that the user named on the command line.
    """

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow
        modifier = take(workflow, "modifier")
        self.root = Path(str(take(workflow, "current_basedir"))).resolve()
        self.is_module = not take(modifier, "is_main_snakefile")()
        self.name_of: Callable[[str], str] = take(modifier, "modify_rulename")
        """Map a rule's name in rules/ to its name in this call of Snakemake."""
        settings = take(workflow, "config_settings")
        self.given: Configuration = (list(take(settings, "configfiles")), dict(take(settings, "config")))
        self.configuration: Configuration = (self.given[0] or ["config.yaml"], self.given[1])
        if self.is_module:
            hands_over = take(modifier, "skip_configfile")
            self.configuration = ([], take(workflow, "config")) if hands_over else ([self.root / "config.yaml"], {})
        _refuse_prefixes(take(modifier, "path_modifier"))

    @property
    def snakefile(self) -> str | None:
        """The file that --snakefile has to name if somebody repeats a part of this call; None if it need not."""
        main = Path(take(self._workflow, "main_snakefile")).resolve()
        usual = next((Path(name).resolve() for name in SNAKEFILES if Path(name).is_file()), None)
        return None if main == usual else os.path.relpath(main)

    @property
    def deployment(self) -> set[str]:
        """The methods of --software-deployment-method: conda, apptainer, env-modules."""
        return {str(method) for method in take(self._workflow, "deployment_settings.deployment_method")}

    @property
    def is_dry_run(self) -> bool:
        """True if this call only shows what would run."""
        return bool(take(self._workflow, "output_settings.dryrun"))

    @property
    def submits(self) -> bool:
        """True if jobs run on the nodes of a cluster."""
        return bool(take(self._workflow, "non_local_exec"))

    @property
    def is_submitted(self) -> bool:
        """True in a job that a cluster runs."""
        return bool(take(self._workflow, "remote_exec"))

    def resource(self, rule: str, name: str) -> tuple[Any, Any]:
        """Return what --set-resources and --default-resources say about a resource of a rule; None: nothing."""
        settings = take(self._workflow, "resource_settings")
        special = take(settings, "_parsed_overwrite_resources").get(self.name_of(rule), {}).get(name)
        general = take(settings, "_parsed_default_resources").get(name)
        return special and take(special, "raw"), general and take(general, "raw")

    def jobs(self, finished: bool = True) -> list[Any]:
        """Return the jobs of this call that have outputs; without those that are finished if `finished` is False."""
        jobs = take(self._workflow, "dag.needrun_jobs")(exclude_finished=not finished)
        return [job for job in jobs if take(job, "output")]

    @property
    def target_rules(self) -> list[str]:
        """The rules that the user can ask for by name, because their outputs have no wildcards."""
        return [str(take(rule, "name")) for rule in take(self._workflow, "rules") if not take(rule, "has_wildcards")()]

    @property
    def targets(self) -> set[Any]:
        """The files that the user asked for by name."""
        return set(take(self._workflow, "dag.targetfiles"))

    @property
    def asked(self) -> set[str]:
        """The words that the user typed as targets: rules and files."""
        return set(map(str, take(self._workflow, "dag_settings.targets")))

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
        if self.is_module or not take(self._workflow, "is_main_process"):
            return None
        return next((handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"), None)

    @property
    def is_quiet(self) -> bool:
        """True if the user wants no output but errors (`--quiet all`)."""
        return "ALL" in {mode.name for mode in take(self._workflow, "output_settings.quiet") or ()}


def options() -> dict[str, str]:
    """Return how many values each option of Snakemake takes: a number, "?" for at most one, "+" for several."""
    from snakemake.cli import get_argument_parser

    counts = {None: "1", "*": "+"}
    actions = take(get_argument_parser(), "_option_string_actions").items()
    return {name: counts.get(action.nargs, str(action.nargs)) for name, action in actions}


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


def start_in_order() -> None:
    """Let Snakemake start jobs by their priority if it starts several at once.

    Snakemake only looks at priorities when it chooses among the jobs that are ready. Jobs that it chooses together are
    submitted in any order. On Slurm these are almost all, and the third repeat of a run could come before the first.
    """
    from snakemake.scheduling.job_scheduler import JobScheduler

    start = take(JobScheduler, "run")
    if hasattr(start, "start"):
        return

    def run(self: Any, jobs: Iterable[Any], executor: Any = None) -> None:
        start(self, sorted(jobs, key=lambda job: -take(job, "priority")), executor)

    run.start = start  # type: ignore[attr-defined]
    JobScheduler.run = run


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


class Answered(WorkflowError):  # type: ignore[misc]
    """The message of a UserError, which ends this call of Snakemake."""


NO_RULE = re.compile(r"No rule to produce (.+) \(if you use input functions")
NO_INPUT = re.compile(r"Missing input files.* for rule .*\n    output: ([^,\n]+)[^\0]*\n    affected files:\n([^\0]+)")
"""What Snakemake says of a target that nothing makes, and of a job (its output) whose inputs are not there."""


def print_answers(
    no_rule: Callable[[str], Exception | None] | None = None,
    no_input: Callable[[str, list[str]], Exception | None] | None = None,
) -> None:
    """Let Snakemake print a UserError as our programs do. It adds its rule, wildcards and lines of our files otherwise.

    no_rule: gets a target that nothing makes; no_input: gets a file, and what it is made of and is not there. If they
    return an error, it is printed in place of Snakemake's own. A later call of this function replaces both.
    """
    from snakemake import exceptions

    shown = take(exceptions, "format_exception_to_string")
    whole = getattr(shown, "whole", shown)

    def format_exception_to_string(error: Any, linemaps: Any = None) -> str:
        answer: Any = _answer(error)
        if no_rule and isinstance(error, take(exceptions, "MissingRuleException")):
            said = NO_RULE.search(str(error))
            answer = said and no_rule(said[1])
        elif no_input and isinstance(error, take(exceptions, "MissingInputException")):
            said = NO_INPUT.search(str(error))
            answer = said and no_input(said[1], [line.strip() for line in said[2].splitlines()])
        return f"error: {answer}" if answer else str(whole(error, linemaps))

    format_exception_to_string.whole = whole  # type: ignore[attr-defined]
    exceptions.format_exception_to_string = format_exception_to_string


def _answer(error: Any) -> BaseException | None:
    """Return the answer in an error of Snakemake, which wraps what an input function raises."""
    from snakemake.exceptions import InputFunctionException

    while isinstance(error, InputFunctionException):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, Answered) else None


def answered(question: Callable[..., Answer], *values: Any, **names: Any) -> Answer:
    """Return what a function of the library returns. If it raises UserError, end Snakemake with that message."""
    from throughline.files import UserError

    try:
        return question(*values, **names)
    except UserError as error:
        raise Answered(str(error)) from None


def take(of: Any, path: str) -> Any:
    """Return an attribute of Snakemake. WorkflowError if this version of Snakemake does not have it."""
    try:
        return reduce(getattr, path.split("."), of)
    except AttributeError as error:
        raise WorkflowError(
            f"Snakemake {__version__} has no {type(of).__name__}.{path} ({error})\n"
            f"  why:  Throughline was tried with Snakemake {TRIED_WITH} (src/throughline/snakemake_inside.py)\n"
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


def include_from_above(workflow: Any) -> None:
    """Include the Snakefile of the folder above, with its first rule as what Snakemake makes if no target is named."""
    folder = _folder_above(take(workflow, "current_basedir"))
    take(workflow, "include")(str(folder / "Snakefile"), overwrite_default_target=True)


def _folder_above(source: Any) -> Path:
    """Return the folder above `source`, the folder of a Snakefile.

    If Snakemake reads the Snakefile from a repository (`github(...)`), there is no such folder, and the workflow needs
    one: it runs programs and imports a library. So we check the repository out, once for each commit and user.
    """
    if type(source).__name__ == "LocalSourceFile":
        return Path(take(source, "path")).parent
    hosted = hasattr(source, "hosted_repo")
    repository = str(take(source, "hosted_repo.repo_clone") if hosted else Path(take(source, "repo_path")).resolve())
    commit = _git(repository, "rev-parse", f"{take(source, 'ref')}^{{commit}}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "workflows")
    folder = cache / commit
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            _git(temporary, "clone", "--quiet", "--no-checkout", repository, "clone")
            _git(f"{temporary}/clone", "checkout", "--quiet", "--detach", commit)
            try:
                os.rename(f"{temporary}/clone", folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster
                    raise
    return folder


def _git(folder: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkflowError(f"git {' '.join(words)} failed in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()
