# Convergence check (a benchmark's `convergence`): a long run, whose curve on held-out text is compared with an expected
# curve.
#   in:  the manifest of its shards, the environment of its framework, and the curve of the check that it begins from,
#        if any (the last checkpoint of that check lies beside its curve); for the verdict, the expected curve
#   out: results/<benchmark>/convergence_bz<b>_<precision>_<framework>_<topology>/curve.json, the .log, and last/ beside it;
#        results/<benchmark>/convergence_bz<b>_<precision>_<framework>_<topology>.json with its plot
# If a run was interrupted, the next call continues from its last checkpoint. Nothing is timed here.


rule convergence:
    input:
        manifest=lambda wildcards: manifest_of_specs([checked_of(wildcards)]),
        environment=environment_of,
        begin=looked_up(TARGETS.begin),
    output:
        curve=f"{CHECK}/curve.json",
    log:
        f"{CHECK}/curve.log",
    conda:
        conda_file
    threads: workflow.cores
    resources:
        **resources_of_run(checked_of),
        runtime=1200,
    params:
        spec=lambda wildcards: checked_of(wildcards).canonical,
        settings=lambda wildcards: canonical(
            CONFIG.block(wildcards.benchmark).convergence.model_dump(exclude={"against", "tolerance", "begin_from"})
        ),
        environment=worker_environment,
        begin=lambda wildcards, input: ["--begin", input.begin] if input.begin else [],
        launcher=LAUNCHER,
    shell:
        command("convergence", "params.begin", "params.environment", by="params.launcher")


rule convergence_verdict:
    input:
        curve=f"{CHECK}/curve.json",
        against=against_of,
        code=code_of("convergence_verdict"),
    output:
        verdict=f"{CHECK}.json",
        svg=report(
            f"{CHECK}.svg", caption="../report/convergence.rst", category="Checks", labels={"check": "{benchmark}"}
        ),
        png=f"{CHECK}.png",
    log:
        "logs/convergence/{benchmark}_bz{batch}_{precision}_{framework}_{topology}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        against=lambda wildcards, input: ["--against", input.against] if input.against else [],
        tolerance=lambda wildcards: str(CONFIG.block(wildcards.benchmark).convergence.tolerance),
    shell:
        command("convergence_verdict", "params.against", output="output.verdict")
