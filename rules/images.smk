# Images: a folder of pictures or of tar files, or the sample -> tar files of JPEG files, verified, with a manifest.
#   in:  images.source
#   out: data/<name>/images/{training,test}_0000.tar, an index (.idx) for each, and data/<name>/images/manifest.json


rule images:
    input:
        PICTURES["images"].files(),


rule faces:
    input:
        PICTURES["faces"].files(),


rule images_listing:
    output:
        "data/{name}/{room}/listing.jsonl",
    log:
        "logs/{name}/{room}/listing.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        source=lambda wildcards: PICTURES[wildcards.room].section.source,
        training=lambda wildcards: PICTURES[wildcards.room].section.shards.training,
        test=lambda wildcards: PICTURES[wildcards.room].section.shards.test,
    shell:
        step("images.listing")


rule images_shard:
    input:
        listing=checked(of_pictures(FolderTargets.check), "data/{name}/{room}/listing.jsonl"),
    output:
        shard="data/{name}/{room}/{split}_{number}.tar",
        index="data/{name}/{room}/{split}_{number}.idx",
    log:
        "logs/{name}/{room}/{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        source=lambda wildcards: PICTURES[wildcards.room].section.source,
        damaged=lambda wildcards: PICTURES[wildcards.room].section.damaged,
        protocol=IMAGES_PROTOCOL,
    shell:
        step("images.shard", output="output.shard")


rule images_verify:
    input:
        listing="data/{name}/{room}/listing.jsonl",
        shard="data/{name}/{room}/{split}_{number}.tar",
        index="data/{name}/{room}/{split}_{number}.idx",
    output:
        "data/{name}/{room}/verified/{split}_{number}.json",
    log:
        "logs/{name}/{room}/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        damaged=lambda wildcards: PICTURES[wildcards.room].section.damaged,
        side=lambda wildcards: SIDE if wildcards.room == "faces" else [],
    shell:
        step("images.verify")


rule images_manifest:
    input:
        listing="data/{name}/{room}/listing.jsonl",
        verified=by_wildcards(of_pictures(FolderTargets.verified)),
    output:
        "data/{name}/{room}/manifest.json",
    log:
        "logs/{name}/{room}/manifest.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        parameters=lambda wildcards: canonical(PICTURES[wildcards.room].section.decided_by(wildcards.room)),
    shell:
        step("images.manifest")
