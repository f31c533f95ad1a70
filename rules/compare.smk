# The comparison: the summaries of this configuration beside archives of earlier results or of other machines.
#   in:  summaries, archives (compare.against)
#   out: results/compare.json, results/compare.html, results/tables/compare.csv

ARCHIVES = answered(CONFIG.compare.there)
COMPARED = ["results/compare.json"] if ARCHIVES else []


rule compared:
    input:
        summaries=list(TARGETS.summaries),
        archives=ARCHIVES,
        code=code_of("compare"),
    output:
        compared="results/compare.json",
        page="results/compare.html",
        table="results/tables/compare.csv",
    log:
        "logs/compare.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("compare", output="output.compared", page="output.page", table="output.table")


rule compare:
    input:
        looked_up(CONFIG.compare.some),
