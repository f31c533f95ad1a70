# The comparison: the summaries of this configuration beside archives of earlier results or of other machines.
#   in:  summaries, archives (compare.against)
#   out: results/compare.json, results/compare.html, results/tables/compare.csv and compare_acceptance.csv

ARCHIVES = answered(CONFIG.compare.there)
COMPARED = ["results/compare.json"] if ARCHIVES else []


rule compared:
    input:
        summaries=list(TARGETS.summaries),
        archives=ARCHIVES,
        acceptance=acceptance_now,
        code=code_of("compare"),
    output:
        compared="results/compare.json",
        page="results/compare.html",
        table="results/tables/compare.csv",
        places="results/tables/compare_acceptance.csv",
    log:
        "logs/compare.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        acceptance=words_of_acceptance,
        state=state_of_acceptance,
    shell:
        command(
            "compare",
            "params.acceptance",
            output="output.compared",
            page="output.page",
            table="output.table",
            places="output.places",
            summaries="input.summaries",
            archives="input.archives",
        )


rule compare:
    input:
        looked_up(CONFIG.compare.some),
