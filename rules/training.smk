# Training runs: one job is one repeat of one configuration on one topology.
#   in:  the manifest of the shards it reads (none with synthetic data), the framework's environment
#   out: results/<benchmark>/bz<b>_<precision>/<framework>/<topology>/run<k>.json, .telemetry.csv, and the .log
# A run is made again when its specification changes or its record is missing; never because data are newer.


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
        "../envs/{framework}.yaml"
    threads: workflow.cores
    resources:
        bench_slot=1,
        cpus_per_task=lambda wildcards: shape_of(wildcards).devices * spec_of(wildcards).threads,
        nodes=lambda wildcards: shape_of(wildcards).nodes,
        tasks=lambda wildcards: shape_of(wildcards).nodes,
        mpi=lambda wildcards: "srun" if shape_of(wildcards).nodes > 1 else None,
        slurm_extra=slurm_options,
        mem_mb=lambda wildcards: shape_of(wildcards).devices * MEMORY_MB[spec_of(wildcards).device],
        runtime=60,
    params:
        spec=lambda wildcards: spec_of(wildcards).canonical,
        manifest=lambda wildcards, input: ["--manifest", input.manifest] if input.manifest else [],
        python=worker_python,
        launcher=LAUNCHER,
    shell:
        "{params.launcher:q} workflow/scripts/run_training.py --spec {params.spec:q} {params.manifest:q}"
        " {params.python:q} --record {output.record:q} --log {log:q}"
