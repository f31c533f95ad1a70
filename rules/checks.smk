# Checks: does every framework compute the same (equivalence), what is the largest batch that fits (max_batch), does a
# long run learn what it should (convergence)? Nothing is timed here.
#   in:  the manifest of the shards that it reads (none with synthetic data), the environments of its frameworks
#   out: results/<benchmark>/equivalence.json, max_<quantity>_<precision>.json,
#        convergence_bz<b>_<precision>_<framework>_<topology>.json; their plots; records and logs in folders of these names

EQUIVALENCE = TrainingJobs(TARGETS.equivalence_check, SLURM)
SEARCHES = TrainingJobs(TARGETS.search, SLURM)
CONVERGENCE = RunJobs(lambda **wildcards: [TARGETS.check(**wildcards)], SLURM)


# Every framework of a benchmark starts from the same weights, trains on the same batches, and is compared with a float64
# reference. A benchmark has this check if it compares frameworks, or if an option splits its model over ranks. The
# summaries include the verdicts.
rule equivalence:
    input:
        manifest=EQUIVALENCE.manifest,
        environments=EQUIVALENCE.environments,
    output:
        equivalence="results/{benchmark}/equivalence.json",
    log:
        "logs/equivalence/{benchmark}.log",
    conda:
        "../envs/main.yaml"
    threads: workflow.cores
    resources:
        **(EQUIVALENCE.resources | {"mem_mb": 8000}),
        runtime=60,
    params:
        specs=EQUIVALENCE.text,
        manifest=option("manifest"),
        environments=EQUIVALENCE.environment_words,
    shell:
        command("equivalence", "params.manifest", "params.environments")


rule equivalence_plot:
    input:
        equivalence="results/{benchmark}/equivalence.json",
        code=code_of("equivalence_plot"),
    output:
        svg=report(
            "results/{benchmark}/equivalence.svg",
            caption="../report/equivalence.rst",
            category="Checks",
            labels={"benchmark": "{benchmark}"},
        ),
        png="results/{benchmark}/equivalence.png",
    log:
        "logs/equivalence/{benchmark}_plot.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("equivalence_plot", output="output.svg")


# The largest batch (extra `max_batch`) or the most classes (`max_classes`): tries of a few steps, each in new processes,
# until the limit is known. There is one job for each benchmark and precision.
rule max_batch:
    input:
        manifest=SEARCHES.manifest,
        environments=SEARCHES.environments,
    output:
        result="results/{benchmark}/max_{quantity}_{precision}.json",
    log:
        "logs/max_{quantity}/{benchmark}_{precision}.log",
    conda:
        "../envs/main.yaml"
    threads: workflow.cores
    resources:
        **SEARCHES.resources,
        runtime=240,
    params:
        specs=SEARCHES.text,
        manifest=option("manifest"),
        environments=SEARCHES.environment_words,
    shell:
        command("max_batch", "params.manifest", "params.environments", quantity="wildcards.quantity")


# A long run, whose curve on held-out text is compared with an expected curve. If it was interrupted, the next call
# continues from its last checkpoint. It may begin with the last weights of another check, which lie beside its curve.
rule convergence:
    input:
        manifest=CONVERGENCE.manifest,
        environment=CONVERGENCE.environments,
        begin=by_wildcards(TARGETS.begin),
    output:
        curve=f"{CHECK}/curve.json",
    log:
        f"{CHECK}/curve.log",
    conda:
        CONVERGENCE.conda_file
    threads: workflow.cores
    resources:
        **CONVERGENCE.resources,
        runtime=1200,
    params:
        spec=CONVERGENCE.text,
        settings=lambda wildcards: canonical(
            CONFIG.block(wildcards.benchmark).convergence.model_dump(exclude={"against", "tolerance", "begin_from"})
        ),
        environment=CONVERGENCE.environment_words,
        begin=option("begin"),
        launcher=CONVERGENCE.launcher,
    shell:
        command("convergence", "params.begin", "params.environment", by="params.launcher")


rule convergence_verdict:
    input:
        curve=f"{CHECK}/curve.json",
        against=by_wildcards(TARGETS.against),
        code=code_of("convergence_verdict"),
    output:
        verdict=f"{CHECK}.json",
        svg=report(
            f"{CHECK}.svg", caption="../report/convergence.rst", category="Checks", labels={"check": "{benchmark}"}
        ),
        png=f"{CHECK}.png",
    log:
        "logs/convergence/{benchmark}_bz{batch}_{precision}_{framework}_{topology}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        against=option("against"),
        tolerance=lambda wildcards: str(CONFIG.block(wildcards.benchmark).convergence.tolerance),
    shell:
        command("convergence_verdict", "params.against", output="output.verdict")
