# Results: the repeats of one batch size and precision -> a summary; a benchmark's summaries -> tables and plots.
#   in:  run records (the summary groups by what they say, never by their file names)
#   out: results/<benchmark>/bz<b>_<precision>.json, results/<benchmark>/tables/, results/<benchmark>/plots/
# These rules are cheap, so the modules they run are inputs: a change in the analysis makes them again.
CELL = "results/{benchmark}/bz{batch}_{precision}.json"
ANALYSIS = [
    str(BASE / "src" / "throughline" / name) for name in ("records.py", "statistics.py", "report/summary.py")
]


def records_of(wildcards):
    """The records that one summary is made of."""
    summary = CELL.format(**dict(wildcards.items()))
    records = [record for record, spec in SPECS.items() if spec.summary == summary]
    if not records:
        raise WorkflowError(
            f"{summary} is not in the configuration. It holds:\n  "
            + "\n  ".join(sorted({spec.summary for spec in SPECS.values()}))
        )
    return records


def summaries_of(wildcards):
    """The summaries of one benchmark."""
    names = sorted({spec.benchmark for spec in SPECS.values()})
    if wildcards.benchmark not in names:
        raise WorkflowError(f"benchmark {wildcards.benchmark} is not in the configuration; there are: {', '.join(names)}")
    return sorted({spec.summary for spec in SPECS.values() if spec.benchmark == wildcards.benchmark})


rule summary:
    input:
        records=records_of,
        code=ANALYSIS,
    output:
        summary=CELL,
    log:
        "logs/{benchmark}/summary_bz{batch}_{precision}.log",
    params:
        options=lambda wildcards: plan.summary_options(CONFIG, wildcards.benchmark),
    conda:
        "../envs/main.yaml"
    shell:
        "python {SCRIPTS:q}/summarize.py {input.records:q} {params.options:q} --output {output.summary:q} 2> {log:q}"
