# Environments: one per framework that cannot share the workflow's own, built once per user.
#   in:  envs/<framework>.txt and its lock, through the hash of the pins in the name
#   out: ~/.cache/throughline/environments/<framework>-<hash>/.ready, the same for every clone


rule environment:
    output:
        ready=f"{recipes.environments()}/{{framework}}-{{digest}}/.ready",
    log:
        "logs/environments/{framework}-{digest}.log",
    priority: BEFORE_RUNS
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        "python workflow/scripts/environment.py {wildcards.framework:q} --log {log:q}"
