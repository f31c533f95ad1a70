# Imports: other people's logs -> every file's outcome, and tables and plots of what could be read.
#   in:  imports.<name>.logs, a folder
#   out: results/<name>/imported.json, results/<name>/imported/
# The logs are a parameter, not inputs: whatever their names are, a changed file or a new one reads the folder again.

IMPORTS = expand("results/{imported}/imported.json", imported=CONFIG.imports)


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
        state=lambda wildcards: import_of(wildcards).state(),
    shell:
        "python workflow/scripts/imports.py --name {wildcards.imported:q} --logs {params.logs:q}"
        " --output {output.imported:q} --drawn {output.drawn:q} 2>&1 | tee {log:q}"
