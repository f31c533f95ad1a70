# GPT-2's tokens: articles -> shards with the ids of GPT-2's byte pair encoding, verified. One manifest serves every
# sequence length.
#   in:  data/<corpus>/articles/part_0000.jsonl (rules/corpus.smk), or somebody else's token files (corpus.dump.shards)
#   out: data/<corpus>/bpe/{training,test}_0000.hdf5 (or .bin: a link to somebody else's file) and
#        data/<corpus>/bpe/manifest.json

BPE_VOCABULARY = CORPUS_TARGETS.tokenizer or f"data/{CORPUS.name}/bpe/vocabulary"


rule bpe_vocabulary:
    output:
        expand("data/{{corpus}}/bpe/vocabulary/{name}", name=["encoder.json", "vocab.bpe"]),
    log:
        "logs/{corpus}/bpe/vocabulary.log",
    priority: BEFORE_RUNS
    localrule: True  # it takes a second
    conda:
        "../envs/main.yaml"
    params:
        folder=f"data/{CORPUS.name}/bpe/vocabulary",
    shell:
        step("corpus.bpe.vocabulary", output="params.folder")


rule bpe_tokenize:
    input:
        articles=of_corpus("data/{corpus}/articles/part_{part}.jsonl", folder=BPE),
        vocabulary=CORPUS_TARGETS.tokenizer or rules.bpe_vocabulary.output,
    output:
        passing("data/{corpus}/bpe/tokens/part_{part}.hdf5"),
    log:
        "logs/{corpus}/bpe/tokenize_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        vocabulary=BPE_VOCABULARY,
    shell:
        step("corpus.bpe.tokenize", vocabulary="params.vocabulary")


if CORPUS_TARGETS.finished is None:

    rule bpe_shard:
        input:
            parts=of_corpus(
                expand("data/{{corpus}}/bpe/tokens/part_{part}.hdf5", part=CORPUS_TARGETS.parts), folder=BPE
            ),
        output:
            "data/{corpus}/bpe/{split}_{number}.hdf5",
        log:
            "logs/{corpus}/bpe/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        resources:
            runtime=5,  # minutes, like rule shard (rules/corpus.smk)
        params:
            position=looked_up(CORPUS_TARGETS.position),
            shards=sum(CORPUS.shards.model_dump().values()),
            digest=CORPUS.digest(BPE),
        shell:
            step("corpus.bpe.shard")

else:

    rule bpe_adopt:
        input:
            shard=looked_up(CORPUS_TARGETS.finished_shard, folder=BPE),
        output:
            "data/{corpus}/bpe/{split}_{number}.bin",
        log:
            "logs/{corpus}/bpe/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        params:
            unpacked=False,
        shell:
            step("corpus.adopt")


rule bpe_verify:
    input:
        shard=f"data/{{corpus}}/bpe/{{split}}_{{number}}{CORPUS_TARGETS.ending(BPE)}",
        vocabulary=(CORPUS_TARGETS.tokenizer or rules.bpe_vocabulary.output) if CORPUS_TARGETS.finished is None else [],
    output:
        "data/{corpus}/bpe/verified/{split}_{number}.json",
    log:
        "logs/{corpus}/bpe/verify_{split}_{number}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    resources:
        runtime=5,
    params:
        vocabulary=BPE_VOCABULARY if CORPUS_TARGETS.finished is None else [],
        digest=CORPUS.digest(BPE) if CORPUS_TARGETS.finished is None else [],
    shell:
        step("corpus.bpe.verify", vocabulary="params.vocabulary")


rule bpe_manifest:
    input:
        verified=looked_up(CORPUS_TARGETS.verified, folder=BPE),
    output:
        "data/{corpus}/bpe/manifest.json",
    log:
        "logs/{corpus}/bpe/manifest.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        parameters=lambda wildcards: canonical(CORPUS.decided_by(BPE)),
    shell:
        step("corpus.bpe.manifest")
