# Training runs: one job is one repeat of one configuration on one topology.
#   in:  the manifest of the shards that it reads (none with synthetic data), the framework's environment
#   out: results/<benchmark>/bz<b>_<precision>/<framework>/<topology>/run<k>.json, .telemetry.csv, and the .log
# A run is made again if its specification changes or its record is missing, but never because its data are newer.
# Environments: one for each framework that cannot share the workflow's own. Each is built once per user.
#   in:  envs/<framework>.toml, its requirements and its lock (the name of the environment has their hash)
#   out: ~/.cache/throughline/environments/<framework>-<hash>/.ready, which all clones share

RUNS = RunJobs(lambda **wildcards: [TARGETS.run(**wildcards)], SLURM)


rule run:
    input:
        manifest=RUNS.manifest,
        environment=RUNS.environments,
    output:
        record=f"{RUN}.json",
        telemetry=f"{RUN}.telemetry.csv",
    log:
        f"{RUN}.log",
    priority: by_wildcards(TARGETS.priority)
    conda:
        RUNS.conda_file
    threads: workflow.cores
    resources:
        **RUNS.resources,
        runtime=60,
    params:
        spec=RUNS.text,
        manifest=option("manifest"),
        environment=RUNS.environment_words,
        launcher=RUNS.launcher,
    shell:
        command("run_training", "params.manifest", "params.environment", record="output.record", by="params.launcher")


rule environment:
    output:
        ready=f"{recipe.environments()}/{{framework}}-{{pins}}/.ready",
    log:
        "logs/environments/{framework}-{pins}.log",
    priority: BEFORE_RUNS
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("environment", frameworks="wildcards.framework")
