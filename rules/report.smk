# The report: every summary of the configuration, and the other finished results under results/ -> one offline page.
#   in:  summaries, manifests
#   out: results/report.html

# `snakemake --report report.zip` makes another page, which shows how Snakemake made the results (docs/elsewhere.md).


report: "../report/workflow.rst"


rule report:
    input:
        summaries=list(TARGETS.summaries),
        manifests=[ancient(manifest) for manifest in TARGETS.manifests()],
        tables=expand("results/{benchmark}/tables", benchmark=TARGETS.by_benchmark),
        plots=expand("results/{benchmark}/plots", benchmark=TARGETS.by_benchmark),
        equivalence=expand("results/{benchmark}/equivalence.svg", benchmark=TARGETS.proofs),
        largest=list(TARGETS.searches),
        convergence=list(TARGETS.checks),
        imports=IMPORTS,
        code=code_of("report"),
    output:
        report=report("results/report.html", caption="../report/page.rst", category="Report"),
    log:
        "logs/report.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        expected=cells.asked_for(SPECS),
    shell:
        command(
            "report",
            summaries="input.summaries",
            manifests="input.manifests",
            imports="input.imports",
            expected="params.expected",
        )
