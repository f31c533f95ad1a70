# Imports: other people's logs -> what came of every file, and tables and plots of the results that could be read.
#   in:  imports.<name>.logs, a folder
#   out: results/<name>/imported.json, results/<name>/imported/
# The state of the logs is a parameter of the rule, and the logs are not inputs. So the folder is read again whenever a
# file in it is new or changed, whatever its name is.

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
        state=lambda wildcards: answered(import_of(wildcards).state, wildcards.imported),
    shell:
        command(
            "imports", name="wildcards.imported", logs="params.logs", output="output.imported", drawn="output.drawn"
        )
