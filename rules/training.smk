# Training runs: one job is one repeat of one configuration on one topology.
#   in:  the manifest of the shards that it reads (none with synthetic data), the framework's environment
#   out: results/<benchmark>/bz<b>_<precision>/<framework>/<topology>/run<k>.json, .telemetry.csv, and the .log
# A run is made again if its specification changes or its record is missing, but never because its data are newer.


rule run:
    input:
        manifest=lambda wildcards: manifest_of_specs([spec_of(wildcards)]),
        environment=environment_of,
    output:
        record=f"{RUN}.json",
        telemetry=f"{RUN}.telemetry.csv",
    log:
        f"{RUN}.log",
    priority: looked_up(TARGETS.priority)
    conda:
        conda_file
    threads: workflow.cores
    resources:
        **resources_of_run(spec_of),
        runtime=60,
    params:
        spec=lambda wildcards: spec_of(wildcards).canonical,
        manifest=lambda wildcards, input: ["--manifest", input.manifest] if input.manifest else [],
        environment=worker_environment,
        launcher=LAUNCHER,
    shell:
        command("run_training", "params.manifest", "params.environment", record="output.record", by="params.launcher")
