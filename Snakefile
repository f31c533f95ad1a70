"""Throughline: Wikipedia dump -> pre-training data -> repeated training runs -> medians, speedups, a report.

snakemake                                      everything that config.yaml asks for
snakemake corpus                               only the data; also: snakemake images, snakemake faces, snakemake clicks
snakemake predictions                          topologies that nobody has measured (runs.predict)
snakemake accept                               is every node, device and link of a cluster as fast as its peers?
snakemake imports                              results from other people's logs
snakemake compare                              results beside those of archives and folders (compare.against)
snakemake pack                                 results/archive.zip, which a stranger can check: throughline check
snakemake results/bert/bz64_fp16.json          one configuration: its topologies and repeats, then medians
snakemake data/sample/seq32/training_0007.hdf5 one shard
"""

import os
import sys

from snakemake.utils import min_version

min_version("9.27")
sys.path.insert(0, os.path.realpath(f"{workflow.current_basedir}/src"))

from throughline.workflow.start import start

INSIDE, CALL, SLURM, NODE_JOBS, HANDLERS = start(workflow)


# The first rule is what Snakemake makes, unless another workflow that uses this one as a module has a rule before it.
rule all:
    input:
        "results/report.html",
        # Snakemake makes a missing file again only if a target names it. A job that failed has left no file.
        CALL.targets.results(),
        lambda _: [*IMPORTS, *COMPARED],
        CALL.data(),


resource_scopes:
    bench_slot="local",


include: "rules/wildcards.smk"
include: "rules/common.smk"
include: "rules/corpus.smk"
include: "rules/bpe.smk"
include: "rules/images.smk"
include: "rules/clicks.smk"
include: "rules/training.smk"
include: "rules/checks.smk"
include: "rules/accept.smk"
include: "rules/results.smk"
include: "rules/exchange.smk"


HANDLERS.rules_are_there()


onstart:
    HANDLERS.start()


onsuccess:
    HANDLERS.success()


onerror:
    HANDLERS.failure()
