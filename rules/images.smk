# Images: a folder of pictures, its tar files, or the sample -> tar files of JPEG files, verified, with a manifest.
#   in:  images.source
#   out: data/<name>/images/{training,test}_0000.tar, an index (.idx) beside each, and data/<name>/images/manifest.json


rule images:
    input:
        IMAGES_TARGETS.files(),


rule images_listing:
    output:
        "data/{images}/images/listing.jsonl",
    log:
        "logs/{images}/images/listing.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        source=CONFIG.images.source,
        shards=CONFIG.images.shards.model_dump(),
    shell:
        "python workflow/scripts/images_listing.py --source {params.source:q} --training {params.shards[training]}"
        " --test {params.shards[test]} --output {output:q} 2>&1 | tee {log:q}"


rule images_shard:
    input:
        of_images("data/{images}/images/listing.jsonl"),
    output:
        shard="data/{images}/images/{split}_{number}.tar",
        index="data/{images}/images/{split}_{number}.idx",
    log:
        "logs/{images}/images/{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        source=CONFIG.images.source,
        damaged=CONFIG.images.damaged,
        protocol=IMAGES_PROTOCOL,
    shell:
        "python workflow/scripts/images_shard.py --listing {input:q} --source {params.source:q}"
        " --damaged {params.damaged} --output {output.shard:q} 2>&1 | tee {log:q}"


rule images_verify:
    input:
        listing="data/{images}/images/listing.jsonl",
        shard="data/{images}/images/{split}_{number}.tar",
        index="data/{images}/images/{split}_{number}.idx",
    output:
        "data/{images}/images/verified/{split}_{number}.json",
    log:
        "logs/{images}/images/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        damaged=CONFIG.images.damaged,
    shell:
        "python workflow/scripts/images_verify.py --listing {input.listing:q} --shard {input.shard:q}"
        " --damaged {params.damaged} --output {output:q} 2>&1 | tee {log:q}"


rule images_manifest:
    input:
        listing="data/{images}/images/listing.jsonl",
        verified=looked_up(IMAGES_TARGETS.verified),
    output:
        "data/{images}/images/manifest.json",
    log:
        "logs/{images}/images/manifest.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        parameters=canonical(CONFIG.images.decided_by("images")),
    shell:
        "python workflow/scripts/images_manifest.py --images {wildcards.images:q} --listing {input.listing:q}"
        " --verified {input.verified:q} --parameters {params.parameters:q} --output {output:q} 2>&1 | tee {log:q}"
