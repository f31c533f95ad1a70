# The report: every summary of the configuration, and the other finished results under results/ -> one offline page.
#   in:  summaries, manifests
#   out: results/report.html


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
        report="results/report.html",
    log:
        "logs/report.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        expected=cells.asked_for(SPECS),
    shell:
        "python workflow/scripts/report.py --summaries {input.summaries:q} --manifests {input.manifests:q}"
        " --imports {input.imports:q}"
        " --expected {params.expected:q}"
        " --output {output.report:q} 2>&1 | tee {log:q}"
