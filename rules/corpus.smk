# The corpus: a Wikipedia dump -> shards of pre-training data in NVIDIA's HDF5 layout, verified, with a manifest.
#   in:  corpus.dump (the sample, or files on disk) and corpus.vocabulary
#   out: data/<corpus>/seq<S>/{training,test}_0000.hdf5 and data/<corpus>/seq<S>/manifest.json
# A part is a piece of the dump; a shard is a piece of the result. How many parts there are changes no shard.
CORPUS = CONFIG.corpus
PARTS = [f"{part:04d}" for part in range(CORPUS.parts)]
SHARDS = [
    f"{split}_{number:04d}"
    for split, count in (("training", CORPUS.shards.training), ("test", CORPUS.shards.test))
    for number in range(count)
]


def of_corpus(path):
    """An input function: `path` with its wildcards filled in, after asking whether the corpus has such a thing."""

    def checked(wildcards):
        asked = dict(wildcards.items())
        if "split" in asked:
            asked["shard"] = f"{asked['split']}_{asked['number']}"
        have = {
            "corpus": [CORPUS.name],
            "sequence": [str(length) for length in CORPUS.sequences],
            "part": PARTS,
            "shard": SHARDS,
        }
        for name in asked.keys() & have.keys():
            if asked[name] not in have[name]:
                there = have[name] if len(have[name]) < 9 else [have[name][0], "...", have[name][-1]]
                raise WorkflowError(f"{name} {asked[name]} is not in the configuration. It holds: {', '.join(there)}")
        return expand(path, **asked, allow_missing=True)

    return checked


def dump_files(wildcards):
    """The dump's files: the user's own, or the one that rule dump makes."""
    if isinstance(CORPUS.dump, list):
        return CORPUS.dump
    if CORPUS.dump == "sample" or runs.is_dump_name(CORPUS.dump):
        return f"data/{CORPUS.name}/dump/{CORPUS.dump}.xml.bz2"
    return CORPUS.dump


def vocabulary_source():
    """The vocabulary as arguments of its command."""
    if isinstance(CORPUS.vocabulary, str):
        return ["--name", CORPUS.vocabulary]
    return ["--path", CORPUS.vocabulary.path, "--sha256", CORPUS.vocabulary.sha256]


def parameters_of(wildcards):
    """What decides a shard beside text and vocabulary, as canonical JSON."""
    return runs.canonical(runs.shard_parameters(CORPUS, int(wildcards.sequence)))


rule corpus:
    input:
        expand("data/{corpus}/seq{sequence}/manifest.json", corpus=CORPUS.name, sequence=CORPUS.sequences),
        expand("data/{corpus}/seq{sequence}/{shard}.hdf5", corpus=CORPUS.name, sequence=CORPUS.sequences, shard=SHARDS),


rule vocabulary:
    output:
        "data/{corpus}/vocabulary.txt",
    log:
        "logs/{corpus}/vocabulary.log",
    conda:
        "../envs/main.yaml"
    params:
        source=vocabulary_source(),
    shell:
        "python {SCRIPTS:q}/corpus_vocabulary.py {params.source:q} --output {output:q} 2>&1 | tee {log:q}"


rule dump:
    output:
        "data/{corpus}/dump/{dump}.xml.bz2",
    log:
        "logs/{corpus}/dump_{dump}.log",
    conda:
        "../envs/main.yaml"
    shell:
        "python {SCRIPTS:q}/corpus_dump.py --output {output:q} 2>&1 | tee {log:q}"


rule cut:
    input:
        dump_files,
    output:
        "data/{corpus}/dump/parts.json",
    log:
        "logs/{corpus}/cut.log",
    conda:
        "../envs/main.yaml"
    params:
        parts=CORPUS.parts,
    shell:
        "python {SCRIPTS:q}/corpus_cut.py --dump {input:q} --parts {params.parts} --output {output:q} 2>&1 | tee {log:q}"


rule extract:
    input:
        of_corpus("data/{corpus}/dump/parts.json"),
    output:
        articles="data/{corpus}/articles/part_{part}.jsonl",
        counts="data/{corpus}/articles/part_{part}.counts.json",
    log:
        "logs/{corpus}/extract_{part}.log",
    conda:
        "../envs/main.yaml"
    shell:
        "python {SCRIPTS:q}/corpus_extract.py --cut {input:q} --part {wildcards.part:q}"
        " --output {output.articles:q} --counts {output.counts:q} 2>&1 | tee {log:q}"


rule tokenize:
    input:
        articles=of_corpus("data/{corpus}/articles/part_{part}.jsonl"),
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/tokens/part_{part}.hdf5",
    log:
        "logs/{corpus}/tokenize_{part}.log",
    conda:
        "../envs/main.yaml"
    shell:
        "python {SCRIPTS:q}/corpus_tokens.py --articles {input.articles:q} --vocabulary {input.vocabulary:q}"
        " --output {output:q} 2>&1 | tee {log:q}"


rule gather:
    input:
        of_corpus(expand("data/{{corpus}}/tokens/part_{part}.hdf5", part=PARTS)),
    output:
        "data/{corpus}/tokens/{split}_{number}.hdf5",
    log:
        "logs/{corpus}/gather_{split}_{number}.log",
    conda:
        "../envs/main.yaml"
    params:
        shards=CORPUS.shards.model_dump(),
    shell:
        "python {SCRIPTS:q}/corpus_gather.py --parts {input:q} --split {wildcards.split:q} --shard {wildcards.number:q}"
        " --training {params.shards[training]} --test {params.shards[test]} --output {output:q} 2>&1 | tee {log:q}"


rule shard:
    input:
        tokens=of_corpus("data/{corpus}/tokens/{split}_{number}.hdf5"),
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence}/{split}_{number}.hdf5",
    log:
        "logs/{corpus}/seq{sequence}/{split}_{number}.log",
    conda:
        "../envs/main.yaml"
    params:
        parameters=parameters_of,
        protocol=runs.DATA_PROTOCOL,
    shell:
        "python {SCRIPTS:q}/corpus_shard.py --tokens {input.tokens:q} --vocabulary {input.vocabulary:q}"
        " --split {wildcards.split:q} --shard {wildcards.number:q} --parameters {params.parameters:q} --output {output:q} 2>&1 | tee {log:q}"


rule verify:
    input:
        shard="data/{corpus}/seq{sequence}/{split}_{number}.hdf5",
        tokens="data/{corpus}/tokens/{split}_{number}.hdf5",
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence}/verified/{split}_{number}.json",
    log:
        "logs/{corpus}/seq{sequence}/verify_{split}_{number}.log",
    conda:
        "../envs/main.yaml"
    params:
        parameters=parameters_of,
    shell:
        "python {SCRIPTS:q}/corpus_verify.py --shard {input.shard:q} --tokens {input.tokens:q}"
        " --vocabulary {input.vocabulary:q} --parameters {params.parameters:q} --output {output:q} 2>&1 | tee {log:q}"


rule manifest:
    input:
        verified=of_corpus(expand("data/{{corpus}}/seq{{sequence}}/verified/{shard}.json", shard=SHARDS)),
        vocabulary="data/{corpus}/vocabulary.txt",
    output:
        "data/{corpus}/seq{sequence}/manifest.json",
    log:
        "logs/{corpus}/seq{sequence}/manifest.log",
    conda:
        "../envs/main.yaml"
    params:
        parameters=lambda wildcards: runs.canonical(runs.corpus_parameters(CORPUS, int(wildcards.sequence))),
    shell:
        "python {SCRIPTS:q}/corpus_manifest.py --corpus {wildcards.corpus:q} --verified {input.verified:q}"
        " --vocabulary {input.vocabulary:q} --parameters {params.parameters:q} --output {output:q} 2>&1 | tee {log:q}"
