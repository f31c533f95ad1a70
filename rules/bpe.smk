# GPT-2's tokens: articles -> shards with the ids of GPT-2's byte pair encoding, verified. One manifest serves every
# sequence length.
#   in:  data/<corpus>/articles/part_0000.jsonl (rules/corpus.smk)
#   out: data/<corpus>/bpe/{training,test}_0000.hdf5 and data/<corpus>/bpe/manifest.json

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
        articles=of_corpus("data/{corpus}/articles/part_{part}.jsonl"),
        vocabulary=CORPUS_TARGETS.tokenizer or rules.bpe_vocabulary.output,
    output:
        "data/{corpus}/bpe/tokens/part_{part}.hdf5",
    log:
        "logs/{corpus}/bpe/tokenize_{part}.log",
    priority: BEFORE_RUNS
    conda:
        "../envs/main.yaml"
    params:
        vocabulary=BPE_VOCABULARY,
    shell:
        step("corpus.bpe.tokenize", vocabulary="params.vocabulary")


rule bpe_shard:
    input:
        parts=of_corpus(expand("data/{{corpus}}/bpe/tokens/part_{part}.hdf5", part=CORPUS_TARGETS.parts)),
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
        position=by_wildcards(CORPUS_TARGETS.position),
        shards=sum(CORPUS.shards.model_dump().values()),
        digest=lambda wildcards: CORPUS.digest(BPE),
    shell:
        step("corpus.bpe.shard")


rule bpe_verify:
    input:
        shard="data/{corpus}/bpe/{split}_{number}.hdf5",
        vocabulary=CORPUS_TARGETS.tokenizer or rules.bpe_vocabulary.output,
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
        vocabulary=BPE_VOCABULARY,
        digest=lambda wildcards: CORPUS.digest(BPE),
    shell:
        step("corpus.bpe.verify", vocabulary="params.vocabulary")


rule bpe_manifest:
    input:
        verified=by_wildcards(CORPUS_TARGETS.verified),
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
