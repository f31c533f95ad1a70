# Clicks: Criteo's logs, or synthetic logs -> shards of rows with hashed categories, verified, with a manifest.
#   in:  clicks.source
#   out: data/<name>/clicks/{training,test}_0000.hdf5 and data/<name>/clicks/manifest.json
# A part is one log. A shard is a piece of the result, with rows from every log.


rule clicks:
    input:
        CLICKS_TARGETS.files(),


rule clicks_synthetic:
    output:
        "data/{name}/clicks/logs/day_{day}.tsv",
    log:
        "logs/{name}/clicks/day_{day}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        rows=by_wildcards(CLICKS_TARGETS.rows),
        values=SYNTHETIC_VALUES,
    shell:
        step("clicks.synthetic")


rule clicks_part:
    input:
        file=by_wildcards(CLICKS_TARGETS.log),
    output:
        "data/{name}/clicks/parts/part_{part}.hdf5",
    log:
        "logs/{name}/clicks/part_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        shards=len(CLICKS_TARGETS.shards.names),
        protocol=CLICKS_PROTOCOL,
    shell:
        step("clicks.part")


rule clicks_shard:
    input:
        parts=by_wildcards(CLICKS_TARGETS.parts),
    output:
        "data/{name}/clicks/{split}_{number}.hdf5",
    log:
        "logs/{name}/clicks/{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        position=by_wildcards(CLICKS_TARGETS.position),
    shell:
        step("clicks.shard")


rule clicks_verify:
    input:
        shard="data/{name}/clicks/{split}_{number}.hdf5",
        parts=by_wildcards(CLICKS_TARGETS.parts),
    output:
        "data/{name}/clicks/verified/{split}_{number}.json",
    log:
        "logs/{name}/clicks/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        position=by_wildcards(CLICKS_TARGETS.position),
    shell:
        step("clicks.verify")


rule clicks_manifest:
    input:
        verified=by_wildcards(CLICKS_TARGETS.verified),
        parts=by_wildcards(CLICKS_TARGETS.parts),
    output:
        "data/{name}/clicks/manifest.json",
    log:
        "logs/{name}/clicks/manifest.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        kind="synthetic" if CONFIG.clicks.source == "synthetic" else "logs",
        parameters=canonical(CONFIG.clicks.decided_by("clicks")),
    shell:
        step("clicks.manifest")
