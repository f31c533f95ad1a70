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
        source=canonical(CORPUS_TARGETS.vocabulary()),
    shell:
        step("corpus.vocabulary")


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
            step("corpus.tokenizer", path="params.path")


rule sample:
    output:
        "data/{corpus}/dump/sample.xml.bz2",
    log:
        "logs/{corpus}/dump_sample.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    shell:
        step("corpus.sample")


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
        step("corpus.download")


rule cut:
    input:
        dump=lambda wildcards: or_exit(CORPUS_TARGETS.dump, wildcards.source_number),
    output:
        "data/{corpus}/dump/parts{source_number}.json",
    log:
        "logs/{corpus}/cut{source_number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        parts=CORPUS.parts,
        text=lambda wildcards, input: CORPUS_TARGETS.is_text(wildcards.source_number),
    shell:
        step("corpus.cut")


rule extract:
    input:
        cut=by_wildcards(CORPUS_TARGETS.cut),
        # With several sources, every source must be readable before the extraction of any source starts.
        every=ancient(expand("data/{{corpus}}/dump/parts{number}.json", number=filter(None, CORPUS_TARGETS.cuts))),
    output:
        articles="data/{corpus}/articles/part_{part}.jsonl",
        counts="data/{corpus}/articles/part_{part}.counts.json",
    log:
        "logs/{corpus}/extract_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        extractor=CORPUS.extractor,
    shell:
        step("corpus.extract", articles="output.articles", counts="output.counts")


rule tokenize:
    input:
        articles=of_corpus("data/{corpus}/articles/part_{part}.jsonl"),
        vocabulary="data/{corpus}/vocabulary.txt",
        tokenizer=CORPUS_TARGETS.tokenizer or [],
    output:
        "data/{corpus}/tokens/part_{part}.hdf5",
    log:
        "logs/{corpus}/tokenize_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        lower_case=CORPUS.lower_case,
        lines=by_wildcards(CORPUS_TARGETS.lines),
    shell:
        step("corpus.tokenize")


rule gather:
    input:
        parts=of_corpus(expand("data/{{corpus}}/tokens/part_{part}.hdf5", part=CORPUS_TARGETS.parts)),
    output:
        "data/{corpus}/tokens/{split}_{number}.hdf5",
    log:
        "logs/{corpus}/gather_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        position=by_wildcards(CORPUS_TARGETS.position),
        shards=sum(CORPUS.shards.model_dump().values()),
    shell:
        step("corpus.gather")


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
            runtime=5,  # minutes; Slurm adds up the steps that share a job, and a hundred of them must fit into a day
        params:
            parameters=lambda wildcards: canonical(CORPUS.shard_parameters(int(wildcards.sequence_length))),
            protocol=DATA_PROTOCOL,
        shell:
            step("corpus.shard")

else:

    rule adopt:
        input:
            shard=by_wildcards(CORPUS_TARGETS.finished_shard),
        output:
            "data/{corpus}/seq{sequence_length}/{split}_{number}.hdf5",
        log:
            "logs/{corpus}/seq{sequence_length}/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        shell:
            step("corpus.adopt")


rule verify:
    input:
        shard="data/{corpus}/seq{sequence_length}/{split}_{number}.hdf5",
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence_length}/verified/{split}_{number}.json",
    log:
        "logs/{corpus}/seq{sequence_length}/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    resources:
        runtime=5,
    params:
        parameters=lambda wildcards: (
            canonical(CORPUS.shard_parameters(int(wildcards.sequence_length)))
            if CORPUS_TARGETS.finished is None
            else []
        ),
        predictions=lambda wildcards: CORPUS.sequences[int(wildcards.sequence_length)],
    shell:
        step("corpus.verify")


rule manifest:
    input:
        verified=by_wildcards(CORPUS_TARGETS.verified),
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
        step("corpus.manifest")
