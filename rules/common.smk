# Input functions of all rules. study/targets.py and the targets.py of a data package look up what the configuration
# asks for. If they find nothing, Snakemake ends with the message of that look-up.

import shlex

from throughline import files, recipes, sources, variants
from throughline.command import loaded, rule_words, step as step_of
from throughline.launch import gpu_builds, lock
from throughline.report.analysis import machines
from throughline.snakemake_inside import answered
from throughline.spec import canonical
from throughline.console import plan
from throughline.datasets.targets import FolderTargets
from throughline.study import runs
from throughline.study.clicks_section import CLICKS_PROTOCOL, SYNTHETIC_VALUES
from throughline.study.corpus_section import BPE, DATA_PROTOCOL
from throughline.study.images_section import IMAGES_PROTOCOL
from throughline.study.targets import CELL, CHECK, RUN, pick
from throughline.workloads.faces import SIDE


def script_of(name):
    """The file of a command in workflow/scripts/."""
    return ROOT / "workflow" / "scripts" / f"{name}.py"


def started(program, *words):
    """The words after `python` that run a script or a module, as a part of a shell command that Snakemake formats."""
    said = [
        files.from_here(ROOT / "src" / "start.py"),
        program if isinstance(program, str) else files.from_here(program),
    ]
    return shlex.join([*said, *words]).replace("{", "{{").replace("}", "}}")


def step(name, **named):
    """Return the command that runs a step which makes data (command.py), such as `clicks.shard`.

    An argument of the step has the value of the same name in the rule. `named` has the arguments whose values are
    called otherwise.
    """
    words = rule_words(step_of(name), named=named, wildcards=WILDCARDS)
    return f"python {started('throughline.command', name)} {words} 2>&1 | tee {{log:q}}"


def command(script, *ready, by=None, **named):
    """Return the command of a rule: a script of workflow/scripts, with the arguments of its signature.

    A required argument has the value of the same name in the rule: a path is an input (`output`: all outputs), another
    argument a param. `named` has the arguments whose values are called otherwise, and the optional ones that the rule
    sets; None: among the words of `ready`, params that are words of a command line already. `by`: the param with the
    Python that runs it. The output is shown and kept in the rule's log, unless the script has a `log` of its own.
    """
    words = rule_words(loaded(str(script_of(script))), ready, named)
    start = f"{f'{{{by}:q}}' if by else 'python'} {started(script_of(script))} {words}"
    return start if "--log " in words else f"{start} 2>&1 | tee {{log:q}}"


def looked_up(look_up, **names):
    """Make an input function: it calls `look_up` with the wildcards and with `names` as keyword arguments."""
    return lambda wildcards: answered(look_up, **dict(wildcards.items()), **names)


spec_of = looked_up(TARGETS.run)
compared_of = looked_up(TARGETS.proof)
largest_of = looked_up(TARGETS.search)
checked_of = looked_up(TARGETS.check)

BEFORE_RUNS = len(TARGETS.specs) + 1
"""The priority of data and environments: higher than that of any run. Otherwise a run that needs no data could start
before the other runs of its repeat."""


def checked(check, path, **names):
    """Make an input function: it calls `check` like `looked_up`, then fills the wildcards into `path`."""

    def filled(wildcards):
        looked_up(check, **names)(wildcards)
        return expand(path, **dict(wildcards.items()), allow_missing=True)

    return filled


def of_corpus(path, **names):
    """Make an input function for a file of the corpus that is made of what the wildcards name."""
    return checked(CORPUS_TARGETS.check, path, **names)


def of_pictures(look_up):
    """Make a look-up for rules of pictures: `look_up` gets the targets of the wildcard `room`, then the others."""
    return lambda room, **wildcards: look_up(PICTURES[room], **wildcards)


def manifest_of_specs(specs):
    """The manifest that a job over several specifications reads; none with synthetic data. `ancient`: a newer manifest
    does not make the job run again."""
    path = runs.manifest(specs[0])
    return ancient(path) if path else []


def environment_of(wildcards):
    """The environment of a run's framework, whatever its age; none if the framework uses the workflow's own."""
    marker = None if APART else recipes.ready(wildcards.framework)
    return ancient(str(marker)) if marker else []


def conda_file(wildcards):
    """The file of conda for a run's framework. Only environments that we build ourselves have versions of it."""
    if "conda" in DEPLOYED and versions.MARK in wildcards.framework:
        answered(versions.not_with_conda, wildcards.framework)
    return str(ROOT / "envs" / f"{versions.base(wildcards.framework)}.yaml")


def worker_environment(wildcards, input):
    """The name of the workers' environment, as an argument. Without the argument they use the launcher's own."""
    if "conda" in DEPLOYED:
        return ["--python", "python"]
    return ["--environment", recipes.name_of(input.environment)] if input.environment else []


def environments_of_specs(specs):
    """The environments of the frameworks in several specifications, whatever their age."""
    names = dict.fromkeys(spec.framework for spec in specs)
    return [ancient(str(marker)) for name in names if (marker := recipes.ready(name))]


def names_of_environments(specs):
    """The names of those environments, as arguments."""
    names = dict.fromkeys(spec.framework for spec in specs)
    return [f"--environment={name}={recipes.name_of(marker)}" for name in names if (marker := recipes.ready(name))]


def equivalence_of(wildcards):
    """The equivalence verdicts that a summary includes; none if the benchmark has no equivalence check."""
    return f"results/{wildcards.benchmark}/equivalence.json" if wildcards.benchmark in TARGETS.proofs else []


def import_of(wildcards):
    """The import of the configuration that a file belongs to."""
    return answered(pick, CONFIG.imports, wildcards.imported, "import {}")


def against_of(wildcards):
    """The file with the expected curve of a convergence check (`against`), if the configuration names one."""
    checked_of(wildcards)
    return CONFIG.block(wildcards.benchmark).convergence.against or []


def code_of(script):
    """The project's own files that a command of workflow/scripts runs, as inputs."""
    return [files.from_here(path) for path in sources.closure(script_of(script))]


def predictions_asked(wildcards):
    """What a benchmark's predictions are asked for, as an argument."""
    return canonical(answered(TARGETS.predicted, wildcards.benchmark))


def summary_options(wildcards, input):
    """The arguments of a summary's command, other than its records."""
    proof = ["--equivalence", input.equivalence] if input.equivalence else []
    return [*TARGETS.summary_options(**wildcards), *proof]


def the_plan():
    """The plan: what this call of Snakemake makes. It can be asked for before the call starts and after it ends."""
    jobs = [list(map(str, job.output)) for job in INSIDE.jobs()]
    margins = {name: block.margin for name, block in CONFIG.benchmarks.items()}
    return plan.Plan(SPECS, jobs, INSIDE.targets, INSIDE.submits, node_jobs=planned_node_jobs(jobs), margins=margins)


def plan_of_dry_run(record):
    """Print the plan before Snakemake's last words on a dry run. This is a filter of its logger."""
    if record.getMessage().startswith("This was a dry-run"):
        logger.info("\n".join([*AUTO.lines, str(the_plan())]))
    return True


def checked_plan():
    """The plan and what `auto` means on this cluster, once it is certain that the pending files can be made here."""
    of_call = the_plan()
    plan.check_places(of_call.pending)
    lock.unclaimed(of_call.pending)
    if plan.REPORT in of_call.pending:
        machines.read(machines.read_asked(CONFIG.asked_of_machines()))
    devices = reserved_devices(of_call.pending)
    return of_call, [*AUTO.lines, *devices, *builds_for_gpus(list(of_call.runs.values()))]


def builds_for_gpus(specs):
    """What the plan says about the frameworks' builds for GPUs. It is asked now, before data are made for hours."""
    if APART or INSIDE.is_submitted:
        return []
    if INSIDE.submits:
        return gpu_builds.doubts_elsewhere(spec.framework for spec in specs if device_of_spec(spec) != "cpu")
    return gpu_builds.check_here(specs)


LAUNCHER = sys.executable if "conda" in DEPLOYED else "python"
"""The workflow's own Python. The launcher runs in it, not in a framework's environment."""

# Jobs on other machines name the environments that this machine chooses, whatever GPUs they have themselves.
os.environ.setdefault(variants.MACHINE, variants.packed(variants.facts()))
os.environ.setdefault(variants.WANTED, answered(variants.wanted))

CORPUS = CONFIG.corpus
# The contact and the mirrors are not parameters of a rule, so a new address does not make finished files again.
os.environ.update(THROUGHLINE_CONTACT=CORPUS.contact or "", THROUGHLINE_MIRRORS=" ".join(CORPUS.mirrors))
