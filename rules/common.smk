# Input functions of all rules. src/throughline/study/targets.py looks up what the configuration asks for. If it finds
# nothing, Snakemake ends with the message of that look-up.


def answered(question, *values, **names):
    """Return what a function of the library returns. If it raises UserError, end Snakemake with that message."""
    try:
        return question(*values, **names)
    except UserError as error:
        raise WorkflowError(str(error))


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


def of_corpus(path, **names):
    """Make an input function: it checks that the corpus has what the wildcards name, then fills them into `path`."""

    def filled(wildcards):
        looked_up(CORPUS_TARGETS.check, **names)(wildcards)
        return expand(path, **dict(wildcards.items()), allow_missing=True)

    return filled


def passing(path):
    """Mark an output as temporary, unless the corpus keeps everything. Snakemake removes a temporary file when no
    job needs it any more."""
    return temp(path) if CORPUS.keep == "shards" else path


def of_images(path):
    """Make an input function: it checks that these images and this shard exist, then fills wildcards into `path`."""

    def filled(wildcards):
        looked_up(PICTURES[wildcards.room].check)(wildcards)
        return expand(path, **dict(wildcards.items()), allow_missing=True)

    return filled


def manifest_of_specs(specs):
    """The manifest that a job over several specifications reads; none with synthetic data. `ancient`: a newer manifest
    does not make the job run again."""
    return ancient(specs[0].manifest) if specs[0].manifest else []


def environment_of(wildcards):
    """The environment of a run's framework, whatever its age; none if the framework uses the workflow's own."""
    marker = None if APART else recipes.ready(wildcards.framework)
    return ancient(str(marker)) if marker else []


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
    """The equivalence verdicts that a summary includes; none if the benchmark has no equivalence proof."""
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
    return [str(path.relative_to(ROOT)) for path in sources.closure(ROOT / f"workflow/scripts/{script}.py")]


def summary_options(wildcards, input):
    """The arguments of a summary's command, other than its records."""
    proof = ["--equivalence", input.equivalence] if input.equivalence else []
    return [*TARGETS.summary_options(**wildcards), *proof]


def the_plan():
    """The plan: what this call of Snakemake makes. It can be asked for before the call starts and after it ends."""
    jobs = [list(map(str, job.output)) for job in workflow.dag.needrun_jobs(exclude_finished=False) if job.output]
    return plan.Plan(SPECS, jobs, workflow.dag.targetfiles, workflow.non_local_exec)


LAUNCHER = sys.executable if "conda" in DEPLOYED else "python"
"""The workflow's own Python. The launcher runs in it, not in a framework's environment."""

CORPUS = CONFIG.corpus
# The contact and the mirrors are not parameters of a rule, so a new address does not make finished files again.
os.environ.update(THROUGHLINE_CONTACT=CORPUS.contact or "", THROUGHLINE_MIRRORS=" ".join(CORPUS.mirrors))
