# The largest batch (extra `max_batch`) or the most classes (`max_classes`): tries of a few steps, each in new
# processes, until the limit is known.
#   in:  the manifest of its shards, the environments of its frameworks
#   out: results/<benchmark>/max_<quantity>_<precision>.json; records and logs of all tries in the folder of that name
# There is one job for each benchmark and precision. Nothing is timed here.


rule max_batch:
    input:
        manifest=lambda wildcards: manifest_of_specs(largest_of(wildcards)),
        environments=lambda wildcards: environments_of_specs(largest_of(wildcards)),
    output:
        result="results/{benchmark}/max_{quantity}_{precision}.json",
    log:
        "logs/max_{quantity}/{benchmark}_{precision}.log",
    conda:
        "../envs/main.yaml"
    threads: workflow.cores
    resources:
        **resources_of_specs(largest_of, options=" --exclusive"),
        runtime=240,
    params:
        specs=lambda wildcards: canonical([spec.changed() for spec in largest_of(wildcards)]),
        manifest=lambda wildcards, input: ["--manifest", input.manifest] if input.manifest else [],
        environments=lambda wildcards: names_of_environments(largest_of(wildcards)),
    shell:
        command("max_batch", "params.manifest", "params.environments", quantity="wildcards.quantity")
