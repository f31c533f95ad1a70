# An acceptance: is every node, device and link as fast as its peers? `snakemake accept`
#   in:  the environments of its frameworks; the nodes of Slurm's partition, of accept.hosts, or this machine
#   out: results/acceptance/<place>/visit<k>.json, and the records of that node job beside it; then the verdict:
#        results/acceptance.json, .html, .txt and results/acceptance/tables/
# One Snakemake job is one node job: it measures everything once at one place. Real names are in
# results/acceptance.local.json alone.


rule accept_visit:
    input:
        environments=lambda wildcards: environments_of_specs([measured.spec for measured in visit_of(wildcards)]),
    output:
        visit=acceptance.VISIT,
    log:
        "logs/acceptance/{place}_visit{repeat}.log",
    priority: priority_of_visit
    conda:
        "../envs/main.yaml"
    threads: threads_of_visit
    resources:
        bench_slot=lambda wildcards: 0 if is_by_ssh(visit_of(wildcards)) else 1,
        nodes=nodes_of_visit,
        tasks=nodes_of_visit,
        mpi=lambda wildcards: "srun" if nodes_of_visit(wildcards) > 1 else None,
        cpus_per_task=cores_of_visit,
        slurm_partition=lambda wildcards: partition_of_accept(),
        slurm_extra=slurm_options_of_visit,
        mem_mb=lambda wildcards: memory_mb_of_spec(largest_spec(wildcards)),
        runtime=60,
    params:
        visit=lambda wildcards: acceptance.visit_text(visit_of(wildcards)),
        environments=lambda wildcards: names_of_environments([measured.spec for measured in visit_of(wildcards)]),
    shell:
        command("accept_visit", "params.environments", output="output.visit")


# Cheap: it judges whatever records are there, and says which are missing. Another verdict follows if a node is away.
rule accept_verdict:
    input:
        visits_now,
        code=code_of("accept_verdict"),
    output:
        output=acceptance.RESULT,
        text="results/acceptance.txt",
        page="results/acceptance.html",
        standings=acceptance.STANDINGS,
        pairs=acceptance.PAIRS,
    log:
        "logs/acceptance/verdict.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        acceptance=lambda wildcards: accepted()[1].text,
        away=lambda wildcards: away.text(accepted()[0]),
    shell:
        command(
            "accept_verdict",
            away="params.away",
            output="output.output",
            text="output.text",
            page="output.page",
            standings="output.standings",
            pairs="output.pairs",
        )


rule accept:
    input:
        rules.accept_verdict.output,
        visits_now,  # Snakemake makes a missing file again only if a target names it
