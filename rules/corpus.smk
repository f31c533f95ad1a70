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
        command("corpus_vocabulary", "params.source")


if CORPUS.tokenizer:

    rule tokenizer:
        output:
            "data/{corpus}/tokenizer.json",
        log:
            "logs/{corpus}/tokenizer.log",
        priority: BEFORE_RUNS
        localrule: True
        conda:
            "../envs/main.yaml"
        params:
            path=CORPUS.tokenizer,
            sha256=CORPUS.own_tokenizer.sha256,
        shell:
            command("corpus_tokenizer", path="params.path")


rule dump:
    output:
        "data/{corpus}/dump/{dump}.xml.bz2",
    log:
        "logs/{corpus}/dump_{dump}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    shell:
        command("corpus_dump")


# The downloaded files lie beside the listing. They are not outputs, because Snakemake removes the outputs of a failed
# job. So the next call continues with what has already arrived.
rule download:
    output:
        "data/{corpus}/dump/{dump}.json",
    log:
        "logs/{corpus}/download_{dump}.log",
    wildcard_constraints:
        dump=r"[a-z][a-z0-9_]*-(\d{8}|latest)",
    priority: BEFORE_RUNS
    localrule: True
    conda:
        "../envs/main.yaml"
    shell:
        command("corpus_download")


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
        command("corpus_cut", "params.form", dump="input")


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
        command("corpus_extract", "params", part="wildcards.part", output="output.articles", counts="output.counts")


rule tokenize:
    input:
        articles=of_corpus("data/{corpus}/articles/part_{part}.jsonl"),
        vocabulary="data/{corpus}/vocabulary.txt",
        tokenizer=CORPUS_TARGETS.tokenizer or [],
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
        *CORPUS_TARGETS.encoded_by(),
    shell:
        command("corpus_tokens", "params", memory_mb="resources.held_mb")


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
        command("corpus_gather", parts="input", **SHARD, **SHARDS, memory_mb="resources.held_mb")


if CORPUS_TARGETS.finished is None:

    rule shard:
        input:
            tokens=of_corpus("data/{corpus}/tokens/{split}_{number}.hdf5"),
            vocabulary="data/{corpus}/vocabulary.txt",
        output:
            "data/{corpus}/seq{sequence_length}/{split}_{number}.hdf5",
        log:
            "logs/{corpus}/seq{sequence_length}/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        resources:
            held_mb=CORPUS.memory_mb,
            runtime=5,  # minutes; Slurm adds up the steps that share a job, and a hundred of them must fit into a day
        params:
            parameters=lambda wildcards: canonical(CORPUS.shard_parameters(int(wildcards.sequence_length))),
            protocol=DATA_PROTOCOL,
            packing=["--unpacked"] if CORPUS.unpacked else [],
        shell:
            command("corpus_shard", "params.packing", **SHARD, memory_mb="resources.held_mb")

else:

    rule adopt:
        input:
            looked_up(CORPUS_TARGETS.finished_shard),
        output:
            "data/{corpus}/seq{sequence_length}/{split}_{number}.hdf5",
        log:
            "logs/{corpus}/seq{sequence_length}/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        params:
            packing=["--unpacked"] if CORPUS.unpacked else [],
        shell:
            command("corpus_adopt", "params.packing", shard="input")


rule verify:
    input:
        shard="data/{corpus}/seq{sequence_length}/{split}_{number}.hdf5",
        tokens="data/{corpus}/tokens/{split}_{number}.hdf5" if CORPUS_TARGETS.finished is None else [],
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence_length}/verified/{split}_{number}.json",
    log:
        "logs/{corpus}/seq{sequence_length}/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    resources:
        held_mb=CORPUS.memory_mb,
        runtime=5,
    params:
        against=lambda wildcards, input: CORPUS_TARGETS.verified_against(wildcards.sequence_length, input.tokens),
    shell:
        command("corpus_verify", "params.against", memory_mb="resources.held_mb")


rule manifest:
    input:
        verified=looked_up(CORPUS_TARGETS.verified),
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence_length}/manifest.json",
    log:
        "logs/{corpus}/seq{sequence_length}/manifest.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        parameters=lambda wildcards: canonical(CORPUS.decided_by(f"seq{wildcards.sequence_length}")),
    shell:
        command("corpus_manifest", corpus="wildcards.corpus")
