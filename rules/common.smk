# Input functions of all rules: from wildcards to files, asking whether the configuration has such a thing.

from throughline.study.corpus_section import DATA_PROTOCOL, ShardFolder, is_dump_name
from throughline.corpus.shards import adopted

CORPUS = CONFIG.corpus
PARTS = [f"{part:04d}" for part in range(CORPUS.parts)]
# Who downloads, and from where, is no parameter of a rule: a new address makes nothing again.
os.environ.update(THROUGHLINE_CONTACT=CORPUS.contact or "", THROUGHLINE_MIRRORS=" ".join(CORPUS.mirrors))


def finished_shards():
    """Finished shards of another maker: {length: {our name: file}}; None where shards are made here."""
    if not isinstance(CORPUS.dump, ShardFolder):
        return None
    try:
        return adopted.find(CORPUS.dump.shards, CORPUS.sequences)
    except UserError as error:
        raise WorkflowError(str(error))


FINISHED = finished_shards()


def shards_of(sequence):
    """Our names of a length's shards; none where the length is not configured."""
    if FINISHED is not None:
        return list(FINISHED.get(int(sequence), {}))
    counts = {"training": CORPUS.shards.training, "test": CORPUS.shards.test}
    return [f"{split}_{number:04d}" for split, count in counts.items() for number in range(count)]


def of_corpus(path):
    """An input function: `path` with its wildcards filled in, after asking whether the corpus has such a thing."""

    def checked(wildcards):
        asked = dict(wildcards.items())
        if "split" in asked:
            asked["shard"] = f"{asked['split']}_{asked['number']}"
        have = {
            "corpus": [CORPUS.name],
            "sequence": [str(length) for length in CORPUS.sequences],
            "part": PARTS,
            "shard": shards_of(asked.get("sequence", min(CORPUS.sequences))),
        }
        for name in asked.keys() & have.keys():
            if asked[name] not in have[name]:
                there = have[name] if len(have[name]) < 9 else [have[name][0], "...", have[name][-1]]
                raise WorkflowError(f"{name} {asked[name]} is not in the configuration. It holds: {', '.join(there)}")
        return expand(path, **asked, allow_missing=True)

    return checked


def dump_files(wildcards):
    """The dump's files: the user's own, the sample that rule dump copies, or the listing that rule download makes."""
    if isinstance(CORPUS.dump, list):
        return CORPUS.dump
    if isinstance(CORPUS.dump, ShardFolder):
        raise WorkflowError("corpus.dump is a folder of finished shards: no part of a dump is extracted")
    if CORPUS.dump == "sample":
        return f"data/{CORPUS.name}/dump/sample.xml.bz2"
    if is_dump_name(CORPUS.dump):
        return f"data/{CORPUS.name}/dump/{CORPUS.dump}.json"
    return CORPUS.dump


def vocabulary_source():
    """The vocabulary as arguments of its command."""
    if isinstance(CORPUS.vocabulary, str):
        return ["--name", CORPUS.vocabulary]
    if CORPUS.vocabulary.path is None:
        return ["--url", CORPUS.vocabulary.url, "--sha256", CORPUS.vocabulary.sha256]
    return ["--path", CORPUS.vocabulary.path, "--sha256", CORPUS.vocabulary.sha256]


def extractor_options():
    """The extractor as arguments of its command; none for the default, whose parts of before this option stay."""
    return [] if CORPUS.extractor == "wikiextractor" else ["--extractor", CORPUS.extractor]


def parameters_of(wildcards):
    """What decides a shard beside text and vocabulary, as canonical JSON."""
    return canonical(CORPUS.shard_parameters(int(wildcards.sequence)))


def finished_shard(wildcards):
    """The file of another maker that stands behind our name of a shard."""
    of_corpus("{corpus}{sequence}{split}{number}")(wildcards)
    return FINISHED[int(wildcards.sequence)][f"{wildcards.split}_{wildcards.number}"]


def verified_shards(wildcards):
    """The verifications of all shards of a length."""
    of_corpus("{corpus}{sequence}")(wildcards)
    folder = f"data/{wildcards.corpus}/seq{wildcards.sequence}/verified"
    return [f"{folder}/{shard}.json" for shard in shards_of(wildcards.sequence)]


def verify_options(wildcards, input):
    """What a shard is verified against: all that we know of it."""
    if FINISHED is not None:
        return ["--size", wildcards.sequence, str(CORPUS.sequences[int(wildcards.sequence)])]
    return ["--tokens", input.tokens, "--parameters", parameters_of(wildcards)]


RUN = "results/{benchmark}/bz{batch}_{precision}/{framework}/{topology}/run{repeat}"


def spec_of(wildcards):
    """The specification behind a record's file name; WorkflowError with what there is instead."""
    record = f"{RUN}.json".format(**dict(wildcards.items()))
    if record in SPECS:
        return SPECS[record]
    cells = sorted({f"results/{spec.cell}/{spec.framework}/{spec.topology}" for spec in SPECS.values()})
    repeats = max((spec.repeat for spec in SPECS.values()), default=0)
    raise WorkflowError(
        f"{record} is not in the configuration. It holds, with run1 to run{repeats}:\n  " + "\n  ".join(cells)
    )


PLACES = {record: place for place, record in enumerate(SPECS)}
"""Every record -> its place in the order of the runs."""
BEFORE_RUNS = len(SPECS) + 1
"""The priority of data and environments: no run is ahead of its repeat because it needs none."""


def priority_of(wildcards):
    """A run's priority: those of one repeat stand together, so that a slow hour hits all configurations alike."""
    return len(SPECS) - PLACES[spec_of(wildcards).record]


def manifest_of(wildcards):
    """The manifest that a run reads, whatever its age; none with synthetic data."""
    spec = spec_of(wildcards)
    return ancient(spec.manifest) if spec.manifest else []


DEPLOYED = {str(method) for method in workflow.deployment_settings.deployment_method}
"""Where conda or a container brings a framework's environment, none is built."""

LAUNCHER = sys.executable if "conda" in DEPLOYED else "python"
"""The workflow's own Python: the launcher is not part of a framework's environment."""


def environment_of(wildcards):
    """The environment of a run's framework, whatever its age; none where it runs in the workflow's own."""
    marker = None if DEPLOYED & {"conda", "apptainer"} else recipes.ready(wildcards.framework)
    return ancient(str(marker)) if marker else []


def worker_python(wildcards, input):
    """The workers' interpreter, as an argument; the launcher's own where nothing is said."""
    if "conda" in DEPLOYED:
        return ["--python", "python"]
    return ["--python", recipes.python_of(input.environment)] if input.environment else []


COMPARED = {} if DEPLOYED & {"conda", "apptainer"} else equivalence.requests(SPECS.values())
"""Benchmark -> what its equivalence is proven on. Empty where no one rule has all environments: with conda, containers."""


def compared_of(wildcards):
    """The comparison of a benchmark's frameworks; WorkflowError where there is none."""
    if wildcards.benchmark not in COMPARED:
        raise WorkflowError(f"{wildcards.benchmark} does not compare frameworks. Those that do: {', '.join(COMPARED)}")
    return COMPARED[wildcards.benchmark]


def manifest_of_specs(specs):
    """The manifest that a job over several specifications reads, whatever its age; none with synthetic data."""
    return ancient(specs[0].manifest) if specs[0].manifest else []


def environments_of_specs(specs):
    """The environments of the frameworks of several specifications, whatever their age."""
    names = dict.fromkeys(spec.framework for spec in specs)
    return [ancient(str(marker)) for name in names if (marker := recipes.ready(name))]


def pythons_of_specs(specs):
    """The interpreters of those environments, as arguments."""
    names = dict.fromkeys(spec.framework for spec in specs)
    return [f"--python={name}={recipes.python_of(marker)}" for name in names if (marker := recipes.ready(name))]


LARGEST = {} if DEPLOYED & {"conda", "apptainer"} else max_batch.requests(CONFIG, SPECS.values())
"""Searches for the largest batch -> their specifications. Empty where no one rule has all environments."""


def largest_of(wildcards):
    """The specifications of one search; WorkflowError with the searches there are instead."""
    path = f"results/{wildcards.benchmark}/max_batch_{wildcards.precision}.json"
    if path not in LARGEST:
        raise WorkflowError(
            f"{path} is not in the configuration: add max_batch to benchmarks.{wildcards.benchmark}.extras. It holds: "
            + (", ".join(LARGEST) or "none")
        )
    return LARGEST[path]


def equivalence_slurm_options(wildcards):
    """What a comparison asks of Slurm: two devices of one node."""
    cuda = runs.benchmark_block(CONFIG, wildcards.benchmark).device == "cuda"
    return "--ntasks-per-node=1" + (" --gpus-per-node=2" if cuda else "")


def equivalence_of(wildcards):
    """The verdicts that a summary takes over; none where one framework is measured alone."""
    return f"results/{wildcards.benchmark}/equivalence.json" if wildcards.benchmark in COMPARED else []


CHECKS = convergence_check.requests(CONFIG, SPECS.values())
"""Convergence checks -> the specifications of their runs."""


def checked_of(wildcards):
    """The specification behind a convergence check; WorkflowError with the checks there are instead."""
    path = f"{CHECK}.json".format(**dict(wildcards.items()))
    if path not in CHECKS:
        raise WorkflowError(
            f"{path} is not in the configuration: set benchmarks.{wildcards.benchmark}.convergence. It holds: "
            + (", ".join(CHECKS) or "none")
        )
    return CHECKS[path]


def against_of(wildcards):
    """The stated curve of a check; none where none is stated."""
    checked_of(wildcards)
    return runs.benchmark_block(CONFIG, wildcards.benchmark).convergence.against or []


CELL = "results/{benchmark}/bz{batch}_{precision}.json"


def code_of(script):
    """The files of ours that a command of workflow/scripts runs, as inputs."""
    return [str(path.relative_to(ROOT)) for path in sources.closure(ROOT / f"workflow/scripts/{script}.py")]


def records_of(wildcards):
    """The records that one summary is made of; WorkflowError with the summaries there are instead."""
    summary = CELL.format(**dict(wildcards.items()))
    if summary not in SUMMARIES:
        raise WorkflowError(f"{summary} is not in the configuration. It holds:\n  " + "\n  ".join(sorted(SUMMARIES)))
    return SUMMARIES[summary]


def summaries_of(wildcards):
    """The summaries of one benchmark; WorkflowError with the benchmarks there are instead."""
    summaries = [summary for summary in SUMMARIES if summary.startswith(f"results/{wildcards.benchmark}/")]
    if not summaries:
        raise WorkflowError(
            f"benchmark {wildcards.benchmark} is not in the configuration. It holds: {', '.join(BENCHMARKS)}"
        )
    return summaries


def extras_of(wildcards):
    """The summaries of a benchmark's derived runs: where its time goes, and what is noise; none where it has none."""
    names = [f"results/{wildcards.benchmark}__{extra}/" for extra in ("noexchange", "synthetic", "aa")]
    return [summary for name in names for summary in SUMMARIES if summary.startswith(name)]


def summary_options(wildcards, input):
    """What a summary has to know beside its records."""
    block = runs.benchmark_block(CONFIG, wildcards.benchmark)
    remarks = [f"--remarks={block.remarks}"] if block.remarks else []
    proof = ["--equivalence", input.equivalence] if input.equivalence else []
    terms = {
        "goals": None if "__" in wildcards.benchmark else CONFIG.goals.model_dump(),
        "prices": {name: price.model_dump() for name, price in CONFIG.prices.items()},
        "task_samples": block.task_samples,
    }
    strict = ["--strict"] if block.strict else []
    return ["--asked", str(block.repeats), "--terms", canonical(terms), *remarks, *proof, *strict]


def manifests():
    """The manifests that the configured runs read."""
    return [ancient(manifest) for manifest in sorted({spec.manifest for spec in SPECS.values() if spec.manifest})]
