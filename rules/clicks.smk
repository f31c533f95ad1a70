# Clicks: Criteo's logs, or synthetic logs -> shards of rows with hashed categories, verified, with a manifest.
#   in:  clicks.source
#   out: data/<name>/clicks/{training,test}_0000.hdf5 and data/<name>/clicks/manifest.json
# A part is one log. A shard is a piece of the result, with rows from every log.


rule clicks:
    input:
        CLICKS_TARGETS.files(),


rule clicks_synthetic:
    output:
        "data/{clicks}/clicks/logs/day_{log}.tsv",
    log:
        "logs/{clicks}/clicks/day_{log}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        made=looked_up(CLICKS_TARGETS.synthetic),
    shell:
        command("clicks_synthetic", "params.made", part=None, rows=None, values=None)


rule clicks_part:
    input:
        looked_up(CLICKS_TARGETS.log),
    output:
        "data/{clicks}/clicks/parts/part_{part}.hdf5",
    log:
        "logs/{clicks}/clicks/part_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        shards=len(CLICKS_TARGETS.shards.names),
        malformed_at_most=CONFIG.clicks.malformed_at_most,
        protocol=CLICKS_PROTOCOL,
    shell:
        command("clicks_part", source="input", part="wildcards.part")


rule clicks_shard:
    input:
        looked_up(CLICKS_TARGETS.parts),
    output:
        "data/{clicks}/clicks/{split}_{number}.hdf5",
    log:
        "logs/{clicks}/clicks/{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        shard=looked_up(CLICKS_TARGETS.shard),
    shell:
        command("clicks_shard", parts="input")


rule clicks_verify:
    input:
        shard="data/{clicks}/clicks/{split}_{number}.hdf5",
        parts=looked_up(CLICKS_TARGETS.parts),
    output:
        "data/{clicks}/clicks/verified/{split}_{number}.json",
    log:
        "logs/{clicks}/clicks/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        shard=looked_up(CLICKS_TARGETS.shard),
    shell:
        command("clicks_verify", number="params.shard")


rule clicks_manifest:
    input:
        verified=looked_up(CLICKS_TARGETS.verified),
        parts=looked_up(CLICKS_TARGETS.parts),
    output:
        "data/{clicks}/clicks/manifest.json",
    log:
        "logs/{clicks}/clicks/manifest.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        source="synthetic" if CONFIG.clicks.source == "synthetic" else "logs",
        parameters=canonical(CONFIG.clicks.decided_by("clicks")),
    shell:
        command("clicks_manifest", clicks="wildcards.clicks")
