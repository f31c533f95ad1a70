# Results: the repeats of one batch size and precision -> a summary; a benchmark's summaries -> tables and plots.
#   in:  run records (the summary groups by what they say, never by their file names)
#   out: results/<benchmark>/bz<b>_<precision>.json, results/<benchmark>/tables/, results/<benchmark>/plots/
# These rules are cheap, so the modules that they run are inputs: a change in the analysis makes them again.
CELL = "results/{benchmark}/bz{batch}_{precision}.json"


def modules(*names):
    """Files of the library, as inputs."""
    paths = (f"{SOURCES}/throughline/{name}" for name in names)
    return [os.path.relpath(path if Path(path).suffix else f"{path}.py") for path in paths]


def records_of(wildcards):
    """The records that one summary is made of; WorkflowError with the summaries there are instead."""
    summary = CELL.format(**dict(wildcards.items()))
    records = [record for record, spec in SPECS.items() if spec.summary == summary]
    if not records:
        raise WorkflowError(f"{summary} is not in the configuration. It holds:\n  " + "\n  ".join(sorted(SUMMARIES)))
    return records


def summaries_of(wildcards):
    """The summaries of one benchmark; WorkflowError with the benchmarks there are instead."""
    summaries = [summary for summary in SUMMARIES if summary.startswith(f"results/{wildcards.benchmark}/")]
    if not summaries:
        raise WorkflowError(
            f"benchmark {wildcards.benchmark} is not in the configuration. It holds: {', '.join(BENCHMARKS)}"
        )
    return summaries


def summary_options(wildcards):
    """What a summary has to know beside its records."""
    block = runs.benchmark_block(CONFIG, wildcards.benchmark)
    remarks = [f"--remarks={block.remarks}"] if block.remarks else []
    return ["--asked", str(block.repeats), *remarks, *(["--strict"] if block.strict else [])]


rule summary:
    input:
        records=records_of,
        code=modules("records", "statistics", "report/summary", "report/advice"),
    output:
        summary=CELL,
    log:
        "logs/summary/{benchmark}/bz{batch}_{precision}.log",
    conda:
        "../envs/main.yaml"
    params:
        options=summary_options,
    shell:
        "python {SCRIPTS:q}/summarize.py {input.records:q} {params.options:q} --output {output.summary:q} 2>&1 | tee {log:q}"


rule tables:
    input:
        summaries=summaries_of,
        code=modules("records", "report/tables", "report/cells", "report/markup"),
    output:
        tables=directory("results/{benchmark}/tables"),
    log:
        "logs/tables/{benchmark}.log",
    conda:
        "../envs/main.yaml"
    shell:
        "python {SCRIPTS:q}/tables.py {input.summaries:q} --output-dir {output.tables:q} 2>&1 | tee {log:q}"


rule plots:
    input:
        summaries=summaries_of,
        code=modules("records", "report/plots", "report/cells", "report/markup"),
    output:
        plots=directory("results/{benchmark}/plots"),
    log:
        "logs/plots/{benchmark}.log",
    conda:
        "../envs/main.yaml"
    shell:
        "python {SCRIPTS:q}/plots.py {input.summaries:q} --output-dir {output.plots:q} 2>&1 | tee {log:q}"
