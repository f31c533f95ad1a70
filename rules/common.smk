# Input functions of all rules. What the configuration asks for is looked up by src/throughline/study/targets.py;
# what a look-up does not find ends Snakemake with its message.


def answered(question, *values, **names):
    """What a function of the library returns; its UserError ends Snakemake with its words."""
    try:
        return question(*values, **names)
    except UserError as error:
        raise WorkflowError(str(error))


def looked_up(look_up, **names):
    """The input function of a look-up that takes wildcards by their names; `names`: what it takes beside them."""
    return lambda wildcards: answered(look_up, **dict(wildcards.items()), **names)


spec_of = looked_up(TARGETS.run)
compared_of = looked_up(TARGETS.proof)
largest_of = looked_up(TARGETS.search)
checked_of = looked_up(TARGETS.check)

BEFORE_RUNS = len(TARGETS.specs) + 1
"""The priority of data and environments: no run is ahead of its repeat because it needs none."""


def of_corpus(path, **names):
    """An input function: `path` with its wildcards filled in, after asking whether the corpus has such a thing."""

    def filled(wildcards):
        looked_up(CORPUS_TARGETS.check, **names)(wildcards)
        return expand(path, **dict(wildcards.items()), allow_missing=True)

    return filled


def passing(path):
    """An output that is removed when all is made of it, unless the corpus keeps everything."""
    return temp(path) if CORPUS.keep == "shards" else path


def of_images(path):
    """An input function: `path`, after asking whether there are such images and such a shard."""

    def filled(wildcards):
        looked_up(PICTURES[wildcards.room].check)(wildcards)
        return expand(path, **dict(wildcards.items()), allow_missing=True)

    return filled


def manifest_of_specs(specs):
    """The manifest that a job over several specifications reads, whatever its age; none with synthetic data."""
    return ancient(specs[0].manifest) if specs[0].manifest else []


def environment_of(wildcards):
    """The environment of a run's framework, whatever its age; none where it runs in the workflow's own."""
    marker = None if APART else recipes.ready(wildcards.framework)
    return ancient(str(marker)) if marker else []


def worker_environment(wildcards, input):
    """The workers' environment by its name, as an argument; the launcher's own where nothing is said."""
    if "conda" in DEPLOYED:
        return ["--python", "python"]
    return ["--environment", recipes.name_of(input.environment)] if input.environment else []


def environments_of_specs(specs):
    """The environments of the frameworks of several specifications, whatever their age."""
    names = dict.fromkeys(spec.framework for spec in specs)
    return [ancient(str(marker)) for name in names if (marker := recipes.ready(name))]


def names_of_environments(specs):
    """The names of those environments, as arguments."""
    names = dict.fromkeys(spec.framework for spec in specs)
    return [f"--environment={name}={recipes.name_of(marker)}" for name in names if (marker := recipes.ready(name))]


def equivalence_of(wildcards):
    """The verdicts that a summary takes over; none where nothing is proven."""
    return f"results/{wildcards.benchmark}/equivalence.json" if wildcards.benchmark in TARGETS.proofs else []


def import_of(wildcards):
    """The import behind a file."""
    return answered(pick, CONFIG.imports, wildcards.imported, "import {}")


def against_of(wildcards):
    """The stated curve of a check; none where none is stated."""
    checked_of(wildcards)
    return CONFIG.block(wildcards.benchmark).convergence.against or []


def code_of(script):
    """The files of ours that a command of workflow/scripts runs, as inputs."""
    return [str(path.relative_to(ROOT)) for path in sources.closure(ROOT / f"workflow/scripts/{script}.py")]


def summary_options(wildcards, input):
    """What a summary has to know beside its records."""
    proof = ["--equivalence", input.equivalence] if input.equivalence else []
    return [*TARGETS.summary_options(**wildcards), *proof]


def the_plan():
    """What this call makes: before it starts, and after."""
    jobs = [list(map(str, job.output)) for job in workflow.dag.needrun_jobs(exclude_finished=False) if job.output]
    return plan.Plan(SPECS, jobs, workflow.dag.targetfiles, workflow.non_local_exec)


LAUNCHER = sys.executable if "conda" in DEPLOYED else "python"
"""The workflow's own Python: the launcher is not part of a framework's environment."""

CORPUS = CONFIG.corpus
# Who downloads, and from where, is no parameter of a rule: a new address makes nothing again.
os.environ.update(THROUGHLINE_CONTACT=CORPUS.contact or "", THROUGHLINE_MIRRORS=" ".join(CORPUS.mirrors))
