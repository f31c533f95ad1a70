# What comes from others and goes to others: logs (imports), results (compare), the archive of this configuration (pack).
#   in:  imports.<name>.logs, a folder; compare.against, archives and folders of earlier results or of other machines;
#        all results
#   out: results/<name>/imported.json, results/<name>/imported/; results/compare.json, results/compare.html,
#        results/tables/compare.csv, machines.csv and compare_acceptance.csv; results/archive.zip
# The state of folders and that of the acceptance are parameters, and the files are no inputs. So a folder is read again
# whenever a file in it is new or changed, and an acceptance is taken as it is.


rule imports:
    input:
        IMPORTS,


rule imported:
    input:
        code=code_of("imports"),
    output:
        imported="results/{imported}/imported.json",
        drawn=directory("results/{imported}/imported"),
    log:
        "logs/imports/{imported}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        logs=lambda wildcards: import_of(wildcards).logs,
        state=lambda wildcards: or_exit(import_of(wildcards).state, wildcards.imported),
    shell:
        command(
            "imports", name="wildcards.imported", logs="params.logs", output="output.imported", drawn="output.drawn"
        )


rule compared:
    input:
        summaries=list(TARGETS.summaries),
        archives=[path for path in AGAINST if path not in map(str, CONFIG.compare.folders())],
        acceptance=NODE_JOBS.result_now,
        code=code_of("compare"),
    output:
        compared="results/compare.json",
        page="results/compare.html",
        table="results/tables/compare.csv",
        machines="results/tables/machines.csv",
        places="results/tables/compare_acceptance.csv",
    log:
        "logs/compare.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        against=AGAINST,
        folders=or_exit(CONFIG.compare.state),
        terms=canonical(CONFIG.model_dump(mode="json", include={"prices"})),
        acceptance=NODE_JOBS.result_words,
        state=NODE_JOBS.result_state,
    shell:
        command(
            "compare",
            "params.acceptance",
            output="output.compared",
            page="output.page",
            table="output.table",
            machines="output.machines",
            places="output.places",
            summaries="input.summaries",
            against="params.against",
            terms="params.terms",
        )


rule compare:
    input:
        by_wildcards(CONFIG.compare.some),


rule archive:
    input:
        report="results/report.html",
        summaries=list(TARGETS.summaries),
        manifests=[ancient(manifest) for manifest in TARGETS.manifests()],
        imports=IMPORTS,
        acceptance=NODE_JOBS.result_now,
        code=code_of("pack"),
    output:
        archive="results/archive.zip",
    log:
        "logs/archive.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        made=lambda _: canonical(TARGETS.made()),
        acceptance=NODE_JOBS.result_words,
        state=NODE_JOBS.result_state,
    shell:
        command("pack", "params.acceptance", manifests="input.manifests", imports="input.imports")


rule pack:
    input:
        "results/archive.zip",
        TARGETS.results(),
