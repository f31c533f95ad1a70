# The report: every summary of the configuration, and the other finished results under results/ -> one offline page.
#   in:  summaries, manifests
#   out: results/report.html; results/machines.csv, the table of all benchmarks and machines
# The folders of other machines are no inputs: nothing in them is made. Their state is a parameter, so the report is made
# again if a file there changes.

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
        predictions=TARGETS.every_prediction,
        imports=IMPORTS,
        archives=COMPARED,
        code=code_of("report"),
    output:
        report=report("results/report.html", caption="../report/page.rst", category="Report"),
        machines=multiext("results/machines", ".csv", ".md"),
    log:
        "logs/report.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        expected=cells.asked_for(SPECS),
        machines=CONFIG.asked_of_machines(),
        elsewhere=CONFIG.state_of_machines(),
    shell:
        command(
            "report",
            output="output.report",
            table="output.machines[0]",
            machines="params.machines",
            summaries="input.summaries",
            manifests="input.manifests",
            imports="input.imports",
            archives="input.archives",
            predictions="input.predictions",
            expected="params.expected",
        )
