"""Throughline: Wikipedia dump -> pre-training data -> repeated training runs -> medians, speedups, a report.

snakemake                                      everything that config.yaml asks for
snakemake corpus                               only the data; also: snakemake images, snakemake faces, snakemake clicks
snakemake logs                                 each benchmark's logs in one archive: results/<benchmark>/logs.zip
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

from throughline import unmade, versions, workflow_call
from throughline.launch.auto_topologies import AutoTopologies
from throughline.report.analysis import cells
from throughline.snakemake_inside import Inside, answered, look_behind_ancient_files, print_answers, start_in_order
from throughline.console import plan
from throughline.console.console import Console

look_behind_ancient_files()
start_in_order()
print_answers()
INSIDE = Inside(workflow)
ROOT = INSIDE.root  # code, presets and tables of facts; the working directory has data/, results/ and logs/

# If conda or containers bring the environments, we build none. Then no job has the environments of several frameworks.
DEPLOYED = INSIDE.deployment
APART = bool(DEPLOYED & {"conda", "apptainer"})

if own_output := INSIDE.own_output:
    logger.addHandler(Console(own_output, INSIDE.is_quiet))
    logger.removeHandler(own_output)

AUTO = AutoTopologies(INSIDE.submits, next(map(str, filter(None, INSIDE.resource("run", "slurm_partition"))), None))
CALL = answered(workflow_call.read, *INSIDE.configuration, ROOT, APART, logger.info, AUTO)
CONFIG, SPECS, TARGETS = CALL.config, CALL.specs, CALL.targets
CORPUS_TARGETS, PICTURES, CLICKS_TARGETS = CALL.corpus, CALL.pictures, CALL.clicks

if not INSIDE.is_module:
    print_answers(
        no_rule=lambda target: unmade.no_rule(CALL, INSIDE.target_rules, target),
        no_input=lambda output, missing: unmade.no_input(CONFIG.model_dump(), output, missing),
    )


# The first rule is what Snakemake makes, unless another workflow that uses this one as a module has a rule before it.
rule all:
    input:
        "results/report.html",
        # Snakemake makes a missing file again only if a target names it. A job that failed has left no file.
        TARGETS.results(),
        lambda _: [*IMPORTS, *COMPARED],
        CORPUS_TARGETS.files_of_runs() if CONFIG.reads("corpus") else [],
        [file for room in PICTURES if CONFIG.folders(room) for file in PICTURES[room].files()],
        CLICKS_TARGETS.files() if CLICKS_TARGETS.files()[0] in TARGETS.manifests() else [],


resource_scopes:
    bench_slot="local",


include: "rules/wildcards.smk"
include: "rules/common.smk"
include: "rules/placement.smk"
include: "rules/corpus.smk"
include: "rules/bpe.smk"
include: "rules/images.smk"
include: "rules/clicks.smk"
include: "rules/environments.smk"
include: "rules/training.smk"
include: "rules/equivalence.smk"
include: "rules/max_batch.smk"
include: "rules/convergence.smk"
include: "rules/predictions.smk"
include: "rules/accepted.smk"
include: "rules/accept.smk"
include: "rules/results.smk"
include: "rules/imports.smk"
include: "rules/compare.smk"
include: "rules/report.smk"
include: "rules/archive.smk"


if INSIDE.is_dry_run:  # Snakemake calls no handler then
    logger.addFilter(plan_of_dry_run)


onstart:
    made, devices = answered(checked_plan)
    logger.info("\n".join([*devices, str(made)]), extra={"event": "plan", "plan": made})
    watch_nodes(made)


onsuccess:
    shell(f"rm -f {plan.SO_FAR}")
    logger.info(the_plan().outcome(), extra={"event": "outcome"})


onerror:
    logs = {str(job.output[0]): str(job.log[0]) for job in INSIDE.jobs(finished=False) if job.log}
    if any(Path(spec.record).exists() for spec in SPECS):
        expected = cells.asked_for(SPECS)
        shell(f"python {started(script_of('report_incomplete'))}" " --expected {expected:q} --output {plan.SO_FAR}")
    judge_what_is_there()
    atexit.register(print, plan.failures(logs), file=sys.stderr)  # printed last, after Snakemake's own output
