# Results: the repeats of one batch size and precision -> a summary; a benchmark's summaries -> predictions, tables and
# plots; everything -> one offline page.
#   in:  run records (a summary groups them by their content, never by their file names), checks, manifests
#   out: results/<benchmark>/bz<b>_<precision>.json, predictions.json (topologies that nobody has measured), tables/, plots/;
#        results/report.html
# These rules take seconds. So the modules that they run are inputs, and a change in the analysis runs them again.
# On a cluster they run on the host where Snakemake runs.
# `snakemake --report report.zip` makes another page, which shows how Snakemake made the results (docs/how-to/elsewhere.md).


report: "../report/workflow.rst"


rule summary:
    input:
        records=by_wildcards(TARGETS.records),
        equivalence=lambda wildcards: (
            f"results/{wildcards.benchmark}/equivalence.json"
            if wildcards.benchmark in TARGETS.equivalence_checks
            else []
        ),
        prices=files.from_here(INSIDE.root / "resources/gpus.csv"),
        code=code_of("summarize"),
    output:
        summary=CELL,
    log:
        "logs/summary/{benchmark}/bz{batch}_{precision}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        options=by_wildcards(TARGETS.summary_options),
        equivalence=option("equivalence"),
    shell:
        command("summarize", "params.options", "params.equivalence", asked=None)


rule predictions:
    input:
        by_wildcards(TARGETS.some_predictions),


rule predicted:
    input:
        summaries=by_wildcards(TARGETS.summaries_of),
        extras=by_wildcards(TARGETS.extras),
        code=code_of("predictions"),
    output:
        predictions="results/{benchmark}/predictions.json",
    log:
        "logs/predictions/{benchmark}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        asked=lambda wildcards: canonical(or_exit(TARGETS.predicted, wildcards.benchmark)),
    shell:
        command("predictions", output="output.predictions", extras="input.extras")


rule tables:
    input:
        summaries=by_wildcards(TARGETS.summaries_of),
        extras=by_wildcards(TARGETS.compared),
        predictions=by_wildcards(TARGETS.predictions),
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
        summaries=by_wildcards(TARGETS.summaries_of),
        extras=by_wildcards(TARGETS.extras),
        predictions=by_wildcards(TARGETS.predictions),
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


rule report:
    input:
        summaries=list(TARGETS.summaries),
        manifests=[ancient(manifest) for manifest in TARGETS.manifests()],
        tables=expand("results/{benchmark}/tables", benchmark=TARGETS.by_benchmark),
        plots=expand("results/{benchmark}/plots", benchmark=TARGETS.by_benchmark),
        equivalence=expand("results/{benchmark}/equivalence.svg", benchmark=TARGETS.equivalence_checks),
        largest=list(TARGETS.searches),
        convergence=list(TARGETS.checks),
        predictions=TARGETS.every_prediction,
        imports=IMPORTS,
        archives=COMPARED,
        code=code_of("report"),
    output:
        report=report("results/report.html", caption="../report/page.rst", category="Report"),
    log:
        "logs/report.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        expected=lambda _: cells.asked_for(CALL.specs),  # a function: text in braces is no wildcard
    shell:
        command(
            "report",
            output="output.report",
            summaries="input.summaries",
            manifests="input.manifests",
            imports="input.imports",
            archives="input.archives",
            predictions="input.predictions",
            expected="params.expected",
        )
