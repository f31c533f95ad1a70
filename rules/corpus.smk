# The corpus: a Wikipedia dump -> shards of pre-training data in NVIDIA's HDF5 layout, verified, with a manifest.
#   in:  corpus.vocabulary, and corpus.dump: the sample, files on disk, a dump's name and date, text files, several of
#        these, or finished shards
#   out: data/<corpus>/seq<S>/{training,test}_0000.hdf5 and data/<corpus>/seq<S>/manifest.json
# A part is a piece of a source. A shard is a piece of the result. The number of parts does not change any shard.
# If there are several sources, each is cut into the same number of parts. The parts are numbered through, one source
# after the other, and parts_0.json, parts_1.json ... replace parts.json.


rule corpus:
    input:
        CORPUS_TARGETS.files(),


rule vocabulary:
    output:
        "data/{corpus}/vocabulary.txt",
    log:
        "logs/{corpus}/vocabulary.log",
    priority: BEFORE_RUNS
    localrule: True  # it may be a download, and the nodes of a cluster often cannot reach the internet
    conda:
        "../envs/main.yaml"
    params:
        source=CORPUS_TARGETS.vocabulary(),
    shell:
        "python workflow/scripts/corpus_vocabulary.py {params.source:q} --output {output:q} 2>&1 | tee {log:q}"


rule dump:
    output:
        "data/{corpus}/dump/{dump}.xml.bz2",
    log:
        "logs/{corpus}/dump_{dump}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    shell:
        "python workflow/scripts/corpus_dump.py --output {output:q} 2>&1 | tee {log:q}"


# The downloaded files lie beside the listing. They are not outputs, because Snakemake removes the outputs of a failed
# job. So the next call continues with what has already arrived.
rule download:
    output:
        "data/{corpus}/dump/{dump}.json",
    log:
        "logs/{corpus}/download_{dump}.log",
    wildcard_constraints:
        dump=r"[a-z][a-z0-9_]*-\d{8}",
    priority: BEFORE_RUNS
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        "python workflow/scripts/corpus_download.py --output {output:q} 2>&1 | tee {log:q}"


rule cut:
    input:
        lambda wildcards: answered(CORPUS_TARGETS.dump, wildcards.source),
    output:
        "data/{corpus}/dump/parts{source}.json",
    log:
        "logs/{corpus}/cut{source}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        parts=CORPUS.parts,
        form=lambda wildcards, input: CORPUS_TARGETS.form(wildcards.source),
    shell:
        "python workflow/scripts/corpus_cut.py --dump {input:q} {params.form:q} --parts {params.parts} --output {output:q} 2>&1 | tee {log:q}"


rule extract:
    input:
        cut=looked_up(CORPUS_TARGETS.cut),
        # With several sources, every source must be readable before the extraction of any source starts.
        every=ancient(expand("data/{{corpus}}/dump/parts{source}.json", source=filter(None, CORPUS_TARGETS.cuts))),
    output:
        articles=passing("data/{corpus}/articles/part_{part}.jsonl"),
        counts="data/{corpus}/articles/part_{part}.counts.json",
    log:
        "logs/{corpus}/extract_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        *CORPUS_TARGETS.extractor(),
    shell:
        "python workflow/scripts/corpus_extract.py --cut {input.cut:q} --part {wildcards.part:q} {params:q}"
        " --output {output.articles:q} --counts {output.counts:q} 2>&1 | tee {log:q}"


rule tokenize:
    input:
        articles=of_corpus("data/{corpus}/articles/part_{part}.jsonl"),
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        passing("data/{corpus}/tokens/part_{part}.hdf5"),
    log:
        "logs/{corpus}/tokenize_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    resources:
        held_mb=CORPUS.memory_mb,  # a resource, not a parameter, because it does not change the result
    params:
        *CORPUS_TARGETS.case(),
        *CORPUS_TARGETS.lines(),
    shell:
        "python workflow/scripts/corpus_tokens.py --articles {input.articles:q} --vocabulary {input.vocabulary:q} {params:q}"
        " --memory-mb {resources.held_mb} --output {output:q} 2>&1 | tee {log:q}"


rule gather:
    input:
        of_corpus(expand("data/{{corpus}}/tokens/part_{part}.hdf5", part=CORPUS_TARGETS.parts)),
    output:
        passing("data/{corpus}/tokens/{split}_{number}.hdf5"),
    log:
        "logs/{corpus}/gather_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    resources:
        held_mb=CORPUS.memory_mb,
    params:
        shards=CORPUS.shards.model_dump(),
    shell:
        "python workflow/scripts/corpus_gather.py --parts {input:q} --split {wildcards.split:q} --shard {wildcards.number:q}"
        " --training {params.shards[training]} --test {params.shards[test]}"
        " --memory-mb {resources.held_mb} --output {output:q} 2>&1 | tee {log:q}"


if CORPUS_TARGETS.finished is None:

    rule shard:
        input:
            tokens=of_corpus("data/{corpus}/tokens/{split}_{number}.hdf5"),
            vocabulary="data/{corpus}/vocabulary.txt",
        output:
            "data/{corpus}/seq{sequence}/{split}_{number}.hdf5",
        log:
            "logs/{corpus}/seq{sequence}/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        resources:
            held_mb=CORPUS.memory_mb,
            runtime=5,  # minutes; Slurm adds up the steps that share a job, and a hundred of them must fit into a day
        params:
            parameters=lambda wildcards: CORPUS_TARGETS.parameters(wildcards.sequence),
            protocol=DATA_PROTOCOL,
            packing=["--unpacked"] if CORPUS.unpacked else [],
        shell:
            "python workflow/scripts/corpus_shard.py --tokens {input.tokens:q} --vocabulary {input.vocabulary:q}"
            " --split {wildcards.split:q} --shard {wildcards.number:q} --parameters {params.parameters:q}"
            " {params.packing:q} --memory-mb {resources.held_mb} --output {output:q} 2>&1 | tee {log:q}"

else:

    rule adopt:
        input:
            looked_up(CORPUS_TARGETS.finished_shard),
        output:
            "data/{corpus}/seq{sequence}/{split}_{number}.hdf5",
        log:
            "logs/{corpus}/seq{sequence}/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        params:
            packing=["--unpacked"] if CORPUS.unpacked else [],
        shell:
            "python workflow/scripts/corpus_adopt.py --shard {input:q} {params.packing:q} --output {output:q} 2>&1 | tee {log:q}"


rule verify:
    input:
        shard="data/{corpus}/seq{sequence}/{split}_{number}.hdf5",
        tokens="data/{corpus}/tokens/{split}_{number}.hdf5" if CORPUS_TARGETS.finished is None else [],
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence}/verified/{split}_{number}.json",
    log:
        "logs/{corpus}/seq{sequence}/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    resources:
        held_mb=CORPUS.memory_mb,
        runtime=5,
    params:
        against=lambda wildcards, input: CORPUS_TARGETS.verified_against(wildcards.sequence, input.tokens),
    shell:
        "python workflow/scripts/corpus_verify.py --shard {input.shard:q} --vocabulary {input.vocabulary:q}"
        " {params.against:q} --memory-mb {resources.held_mb} --output {output:q} 2>&1 | tee {log:q}"


rule manifest:
    input:
        verified=looked_up(CORPUS_TARGETS.verified),
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence}/manifest.json",
    log:
        "logs/{corpus}/seq{sequence}/manifest.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        parameters=lambda wildcards: canonical(CORPUS.decided_by(f"seq{wildcards.sequence}")),
    shell:
        "python workflow/scripts/corpus_manifest.py --corpus {wildcards.corpus:q} --verified {input.verified:q}"
        " --vocabulary {input.vocabulary:q} --parameters {params.parameters:q} --output {output:q} 2>&1 | tee {log:q}"
