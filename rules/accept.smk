# An acceptance: is every node, device and link as fast as its peers? `snakemake accept`
#   in:  the environments of its frameworks; the nodes of Slurm's partition, of accept.hosts, or this machine
#   out: results/acceptance/<place>/visit<k>.json, and the records of that node job beside it; then the verdict:
#        results/acceptance.json, .html, .txt and results/acceptance/tables/
# One Snakemake job is one node job: it measures everything once at one place. Real names are in
# results/acceptance.local.json and results/acceptance.exclude alone.
# With accept.quick, one job lets all nodes check themselves. Then there are node jobs for the pairs that have passed.

VISITS = TrainingJobs(NODE_JOBS.specs, SLURM)
QUICK = TrainingJobs(NODE_JOBS.quick_specs, SLURM)


checkpoint accept_quick:
    input:
        environments=QUICK.environments,
    output:
        acceptance.QUICK,
    log:
        "logs/acceptance/quick.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        acceptance=lambda wildcards: NODE_JOBS.asked.text,
        away=lambda wildcards: NODE_JOBS.away,
        srun=NODE_JOBS.srun,
        environments=QUICK.environment_words,
    shell:
        command("accept_quick", "params.srun", "params.environments", away="params.away", srun=None)


rule accept_visit:
    input:
        environments=VISITS.environments,
    output:
        visit=acceptance.VISIT,
    log:
        "logs/acceptance/{place}_visit{repeat}.log",
    priority: NODE_JOBS.priority
    conda:
        "../envs/main.yaml"
    threads: NODE_JOBS.threads
    resources:
        **NODE_JOBS.resources,
        runtime=60,
    params:
        visit=lambda wildcards: acceptance.visit_text(NODE_JOBS.visit(wildcards)),
        environments=VISITS.environment_words,
    shell:
        command("accept_visit", "params.environments", output="output.visit")


# Cheap: it judges whatever records are there, and says which are missing. Another verdict follows if a node is away.
rule accept_verdict:
    input:
        lambda wildcards: NODE_JOBS.visits_now(checkpoints.accept_quick.get),
        code=code_of("accept_verdict"),
    output:
        **acceptance.VERDICT,
    log:
        "logs/acceptance/verdict.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        acceptance=lambda wildcards: NODE_JOBS.asked.text,
        away=lambda wildcards: NODE_JOBS.away,
    shell:
        command("accept_verdict", away="params.away", **{name: f"output.{name}" for name in acceptance.VERDICT})


rule accept:
    input:
        rules.accept_verdict.output,
        # Snakemake makes a missing file again only if a target names it
        lambda wildcards: NODE_JOBS.visits_now(checkpoints.accept_quick.get),
