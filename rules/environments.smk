# Environments: one for each framework that cannot share the workflow's own. Each is built once per user.
#   in:  envs/<framework>.txt and its lock (the name of the environment holds the hash of these pins)
#   out: ~/.cache/throughline/environments/<framework>-<hash>/.ready, which all clones share


rule environment:
    output:
        ready=f"{recipes.environments()}/{{framework}}-{{pins}}/.ready",
    log:
        "logs/environments/{framework}-{pins}.log",
    priority: BEFORE_RUNS
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("environment", frameworks="wildcards.framework")
