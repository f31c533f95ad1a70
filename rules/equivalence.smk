# Equivalence: every framework of a benchmark starts from the same weights, trains on the same batches, and is compared
# with a float64 reference. A benchmark has this check if it compares frameworks, or if an option splits its model over
# ranks.
#   in:  the manifest of its shards, the environments of its frameworks
#   out: results/<benchmark>/equivalence.json and its plot; records and logs in results/<benchmark>/equivalence/
# The summaries include the verdicts. Nothing is timed here.


rule equivalence:
    input:
        manifest=lambda wildcards: manifest_of_specs(compared_of(wildcards)),
        environments=lambda wildcards: environments_of_specs(compared_of(wildcards)),
    output:
        equivalence="results/{benchmark}/equivalence.json",
    log:
        "logs/equivalence/{benchmark}.log",
    conda:
        "../envs/main.yaml"
    threads: workflow.cores
    resources:
        **(resources_of_specs(compared_of) | {"mem_mb": 8000}),
        runtime=60,
    params:
        specs=lambda wildcards: canonical([spec.changed() for spec in compared_of(wildcards)]),
        manifest=lambda wildcards, input: ["--manifest", input.manifest] if input.manifest else [],
        environments=lambda wildcards: names_of_environments(compared_of(wildcards)),
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
