# Training runs: one job is one repeat of one configuration on one topology.
#   in:  the manifest of the shards it reads (none with synthetic data)
#   out: results/<benchmark>/bz<b>_<precision>/<framework>/<topology>/run<k>.json, and the .log beside it
# A run is made again when its specification changes or its record is missing; never because data are newer.
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


def manifest_of(wildcards):
    spec = spec_of(wildcards)
    return ancient(f"data/{spec.corpus.name}/seq{spec.sequence}/manifest.json") if spec.corpus else []


rule run:
    input:
        manifest=manifest_of,
    output:
        record=f"{RUN}.json",
    log:
        f"{RUN}.log",
    priority: lambda wildcards: 1000 - int(wildcards.repeat)
    conda:
        "../envs/{framework}.yaml"
    threads: workflow.cores
    resources:
        bench_slot=1,
        cpus_per_task=lambda wildcards: runs.Topology.parse(wildcards.topology).devices * spec_of(wildcards).threads,
    params:
        spec=lambda wildcards: spec_of(wildcards).canonical,
        manifest=lambda wildcards, input: ["--manifest", input.manifest] if input.manifest else [],
    shell:
        "python {SCRIPTS:q}/run_training.py --spec {params.spec:q} {params.manifest:q}"
        " --record {output.record:q} --log {log:q}"
