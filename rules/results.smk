# Results: the repeats of one batch size and precision -> a summary; a benchmark's summaries -> tables and plots.
#   in:  run records (a summary groups them by their content, never by their file names)
#   out: results/<benchmark>/bz<b>_<precision>.json, results/<benchmark>/tables/, results/<benchmark>/plots/
# These rules take seconds. So the modules that they run are inputs, and a change in the analysis runs them again.
# On a cluster they run on the host where Snakemake runs.


rule summary:
    input:
        records=looked_up(TARGETS.records),
        equivalence=equivalence_of,
        prices=files.from_here(ROOT / "resources/gpus.csv"),
        code=code_of("summarize"),
    output:
        summary=CELL,
    log:
        "logs/summary/{benchmark}/bz{batch}_{precision}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        options=summary_options,
    shell:
        command("summarize", "params.options", asked=None)


rule tables:
    input:
        summaries=looked_up(TARGETS.summaries_of),
        extras=looked_up(TARGETS.compared),
        predictions=looked_up(TARGETS.predictions),
        code=code_of("tables"),
    output:
        tables=report(
            directory("results/{benchmark}/tables"),
            patterns=["{table,[a-z_]+}.csv"],
            caption="../report/tables.rst",
            category="Tables",
            subcategory="{benchmark}",
            labels={"table": "{table}"},
        ),
    log:
        "logs/tables/{benchmark}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("tables", output_dir="output.tables", extras="input.extras", predictions="input.predictions")


rule plots:
    input:
        summaries=looked_up(TARGETS.summaries_of),
        extras=looked_up(TARGETS.extras),
        predictions=looked_up(TARGETS.predictions),
        code=code_of("plots"),
    output:
        plots=report(
            directory("results/{benchmark}/plots"),
            patterns=["{plot}.svg"],
            caption="../report/plots.rst",
            category="Plots",
            subcategory="{benchmark}",
            labels={"plot": "{plot}"},
        ),
    log:
        "logs/plots/{benchmark}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("plots", output_dir="output.plots", extras="input.extras", predictions="input.predictions")


# On request only: `snakemake logs`. Logs are no inputs, because Snakemake keeps them as logs of the runs.
rule logs:
    input:
        expand("results/{benchmark}/logs.zip", benchmark=TARGETS.by_benchmark),


rule packed_logs:
    input:
        summaries=looked_up(TARGETS.summaries_of),
        code=code_of("pack_logs"),
    output:
        logs="results/{benchmark}/logs.zip",
    log:
        "logs/packed_logs/{benchmark}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("pack_logs", output="output.logs")
