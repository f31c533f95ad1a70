# Results: the repeats of one batch size and precision -> a summary; a benchmark's summaries -> tables and plots.
#   in:  run records (a summary groups them by their content, never by their file names)
#   out: results/<benchmark>/bz<b>_<precision>.json, results/<benchmark>/tables/, results/<benchmark>/plots/
# These rules take seconds. So the modules that they run are inputs, and a change in the analysis runs them again.
# On a cluster they run on the host where Snakemake runs.


rule summary:
    input:
        records=looked_up(TARGETS.records),
        equivalence=equivalence_of,
        prices="resources/gpus.csv",
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
        "python workflow/scripts/summarize.py {input.records:q} {params.options:q} --output {output.summary:q} 2>&1 | tee {log:q}"


rule tables:
    input:
        summaries=looked_up(TARGETS.summaries_of),
        extras=looked_up(TARGETS.compared),
        code=code_of("tables"),
    output:
        tables=directory("results/{benchmark}/tables"),
    log:
        "logs/tables/{benchmark}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        "python workflow/scripts/tables.py {input.summaries:q} --extras {input.extras:q} --output-dir {output.tables:q} 2>&1 | tee {log:q}"


rule plots:
    input:
        summaries=looked_up(TARGETS.summaries_of),
        extras=looked_up(TARGETS.extras),
        code=code_of("plots"),
    output:
        plots=directory("results/{benchmark}/plots"),
    log:
        "logs/plots/{benchmark}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        "python workflow/scripts/plots.py {input.summaries:q} --extras {input.extras:q} --output-dir {output.plots:q} 2>&1 | tee {log:q}"
