# Predictions: a benchmark's summaries -> the throughput of topologies that nobody has measured.
#   in:  summaries of a benchmark, and those of its derived runs
#   out: results/<benchmark>/predictions.json, which tables, plots and the report read


rule predictions:
    input:
        looked_up(TARGETS.some_predictions),


rule predicted:
    input:
        summaries=looked_up(TARGETS.summaries_of),
        extras=looked_up(TARGETS.extras),
        code=code_of("predictions"),
    output:
        predictions="results/{benchmark}/predictions.json",
    log:
        "logs/predictions/{benchmark}.log",
    localrule: True
    conda:
        "../envs/main.yaml"
    params:
        asked=predictions_asked,
    shell:
        command("predictions", output="output.predictions", extras="input.extras")
