"""Throughline: Wikipedia dump -> pre-training data -> repeated training runs -> medians, speedups, a report.

snakemake                                      everything that config.yaml asks for
snakemake corpus                               only the data; also: snakemake images, snakemake faces, snakemake clicks
snakemake predictions                          topologies that nobody has measured (runs.predict)
snakemake accept                               is every node, device and link of a cluster as fast as its peers?
snakemake imports                              results from other people's logs
snakemake compare                              results beside those of archives (compare.against)
snakemake pack                                 results/archive.zip, which a stranger can check: throughline check
snakemake results/bert/bz64_fp16.json          one configuration: its topologies and repeats, then medians
snakemake data/sample/seq32/training_0007.hdf5 one shard
"""

import atexit
import os
import sys
from pathlib import Path

from snakemake.logging import logger
from snakemake.utils import min_version

min_version("9.27")
sys.path.insert(0, os.path.realpath(f"{workflow.current_basedir}/src"))
# The commands of the rules use this Python, and src/start.py finds the library.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

from throughline.console import plan
from throughline.console.console import Console
from throughline.launch.auto_topologies import AutoTopologies
from throughline.workflow import call, handlers
from throughline.workflow.call import or_exit
from throughline.workflow.inside import Inside, look_behind_ancient_files
from throughline.workflow.node_jobs import NodeJobs
from throughline.workflow.slurm_resources import SlurmResources

look_behind_ancient_files()
INSIDE = Inside(workflow)
if own_output := INSIDE.own_output:
    logger.addHandler(Console(own_output, INSIDE.is_quiet))
    logger.removeHandler(own_output)

# The configuration is config.yaml, or the files after --configfile in its place. So there is no `configfile:`, which
# would merge both.
AUTO = AutoTopologies(INSIDE.submits, next(map(str, filter(None, INSIDE.resource("run", "slurm_partition"))), None))
CALL = or_exit(call.read, *INSIDE.configuration, INSIDE.root, AUTO, INSIDE.is_deployed, logger.info)
or_exit(call.hand_over, CALL.config, INSIDE)
SLURM = SlurmResources(CALL.config, INSIDE)
NODE_JOBS = NodeJobs(SLURM)


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


if not INSIDE.is_module:
    or_exit(call.check_targets, CALL, *INSIDE.unmade())

if INSIDE.is_dry_run:  # Snakemake calls no handler then
    logger.addFilter(lambda record: handlers.plan_of_dry_run(record, CALL, INSIDE, NODE_JOBS, AUTO.lines))


onstart:
    made = handlers.planned(CALL, INSIDE, NODE_JOBS)
    lines = or_exit(handlers.check, made, CALL, INSIDE, NODE_JOBS)
    logger.info("\n".join([*AUTO.lines, *lines, str(made)]), extra={"event": "plan", "plan": made})
    if made.node_jobs and INSIDE.submits:
        NODE_JOBS.watch()


onsuccess:
    Path(plan.SO_FAR).unlink(missing_ok=True)
    logger.info(handlers.planned(CALL, INSIDE, NODE_JOBS).outcome(), extra={"event": "outcome"})


onerror:
    failures = handlers.judge_what_is_there(CALL, INSIDE, NODE_JOBS)
    atexit.register(print, failures, file=sys.stderr)  # printed last, after Snakemake's own output
