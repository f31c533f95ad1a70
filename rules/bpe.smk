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
        command("corpus_bpe_vocabulary", output="params.folder")


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
    resources:
        held_mb=CORPUS.memory_mb,  # a resource, not a parameter, because it does not change the result
    params:
        vocabulary=BPE_VOCABULARY,
    shell:
        command("corpus_bpe_tokens", vocabulary="params.vocabulary", memory_mb="resources.held_mb")


if CORPUS_TARGETS.finished is None:

    rule bpe_shard:
        input:
            of_corpus(expand("data/{{corpus}}/bpe/tokens/part_{part}.hdf5", part=CORPUS_TARGETS.parts), folder=BPE),
        output:
            "data/{corpus}/bpe/{split}_{number}.hdf5",
        log:
            "logs/{corpus}/bpe/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        resources:
            held_mb=CORPUS.memory_mb,
            runtime=5,  # minutes, like rule shard (rules/corpus.smk)
        params:
            shards=CORPUS.shards.model_dump(),
            digest=CORPUS.digest(BPE),
        shell:
            command("corpus_bpe_shard", parts="input", **SHARD, **SHARDS, memory_mb="resources.held_mb")

else:

    rule bpe_adopt:
        input:
            looked_up(CORPUS_TARGETS.finished_shard, folder=BPE),
        output:
            "data/{corpus}/bpe/{split}_{number}.bin",
        log:
            "logs/{corpus}/bpe/{split}_{number}.log",
        priority: BEFORE_RUNS
        conda:
            "../envs/main.yaml"
        shell:
            command("corpus_adopt", shard="input")


BPE_WORDS = CORPUS_TARGETS.tokenizer or rules.bpe_vocabulary.output if CORPUS_TARGETS.finished is None else []


rule bpe_verify:
    input:
        shard=f"data/{{corpus}}/bpe/{{split}}_{{number}}{CORPUS_TARGETS.ending(BPE)}",
        vocabulary=BPE_WORDS,
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
        against=CORPUS_TARGETS.tokens_against(),
    shell:
        command("corpus_bpe_verify", "params.against")


rule bpe_manifest:
    input:
        looked_up(CORPUS_TARGETS.verified, folder=BPE),
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
        command("corpus_bpe_manifest", corpus="wildcards.corpus", verified="input")
