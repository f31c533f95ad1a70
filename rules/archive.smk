# The archive: the results of this configuration in one file, for a stranger who wants to check them.
#   in:  results/report.html, and so all summaries, tables and plots; the acceptance, if there is one
#   out: results/archive.zip


rule archive:
    input:
        report="results/report.html",
        summaries=list(TARGETS.summaries),
        manifests=[ancient(manifest) for manifest in TARGETS.manifests()],
        imports=IMPORTS,
        acceptance=acceptance_now,
        code=code_of("pack"),
    output:
        archive="results/archive.zip",
    log:
        "logs/archive.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        made=canonical(TARGETS.made()),
        acceptance=words_of_acceptance,
        state=state_of_acceptance,
    shell:
        command("pack", "params.acceptance", manifests="input.manifests", imports="input.imports")


rule pack:
    input:
        "results/archive.zip",
        TARGETS.results(),
