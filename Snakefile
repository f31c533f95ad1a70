"""Throughline: Wikipedia dump -> pre-training data -> repeated training runs -> medians, speedups, a report.

snakemake                                      everything that config.yaml asks for
snakemake corpus                               only the data; also: snakemake images, snakemake faces, snakemake clicks
snakemake imports                              results from other people's logs
snakemake results/bert/bz64_fp16.json          one configuration: its topologies and repeats, then medians
snakemake data/sample/seq32/training_0007.hdf5 one shard
"""

import atexit
import os
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "src"))
# The commands of the rules use this Python and find the library.
os.environ.update(PYTHONPATH=sys.path[0], PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from throughline import console, files, frameworks, recipes, records, sources, workloads
from throughline.checks import convergence_check, equivalence, max_batch
from throughline.corpus.shards import adopted
from throughline.files import UserError
from throughline.launch import lock
from throughline.report.analysis import cells
from throughline.study import plan, runs
from throughline.study.config import load
from throughline.study.corpus_section import BPE, BPE_PROTOCOL, DATA_PROTOCOL
from throughline.study.clicks_section import CLICKS_PROTOCOL
from throughline.study.images_section import IMAGES_PROTOCOL
from throughline.study.section import canonical
from throughline.study.targets import CELL, CHECK, RUN, ClicksTargets, CorpusTargets, PicturesTargets, Targets, pick
from throughline.workloads.faces import SIDE

if Path.cwd() != ROOT:
    raise WorkflowError(f"Snakemake has to run in the project's root, {ROOT}")

# If conda or containers bring the environments, we build none. Then no job has the environments of several frameworks.
DEPLOYED = {str(method) for method in workflow.deployment_settings.deployment_method}
APART = bool(DEPLOYED & {"conda", "apptainer"})

if any(getattr(handler, "is_console", False) for handler in workflow.logger_manager.get_log_handlers()):
    shell.prefix(console.PREFIX)

try:
    CONFIG = load(
        workflow.config_settings.configfiles or ["config.yaml"],
        workflow.config_settings.config,
        frameworks=frameworks.NAMES,
    )
    SPECS = runs.expand(CONFIG)
    TARGETS = Targets(
        CONFIG,
        SPECS,
        proofs={} if APART else equivalence.requests(SPECS),
        searches={} if APART else max_batch.requests(CONFIG, SPECS),
        checks=convergence_check.requests(CONFIG, SPECS),
    )
    records.leave_newer({spec.summary for spec in SPECS})
    CORPUS_FOLDERS = CONFIG.corpus.made(CONFIG.folders("corpus"))
    CORPUS_TARGETS = CorpusTargets(CONFIG.corpus, CORPUS_FOLDERS, adopted.of(CONFIG.corpus, CORPUS_FOLDERS))
    PICTURES = {room: PicturesTargets(section, room) for room, section in CONFIG.pictures().items()}
    CLICKS_TARGETS = ClicksTargets(CONFIG.clicks)
except UserError as error:
    raise WorkflowError(str(error))


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
include: "rules/results.smk"
include: "rules/imports.smk"
include: "rules/report.smk"


wildcard_constraints:
    corpus="[a-z][a-z0-9_]*",
    images="[a-z][a-z0-9_]*",
    room="images|faces",
    clicks="[a-z][a-z0-9_]*",
    log=r"\d+",
    sequence=r"[1-9]\d*",
    split="training|test",
    number=r"\d{4}",
    part=r"\d{4}",
    source=r"(_\d+)?",
    dump=r"[a-z0-9_-]+",
    benchmark="[a-z][a-z0-9_]*",
    batch=r"[1-9]\d*",
    precision="fp32|tf32|bf16|fp16|fp8",
    framework="[a-z][a-z0-9-]*",
    digest="[0-9a-f]{12}(-nccl)?",
    topology=r"[1-9]\d*n[1-9]\d*g",
    repeat=r"[1-9]\d*",
    quantity="batch|classes",
    imported="[a-z][a-z0-9_]*",


resource_scopes:
    bench_slot="local",


rule all:
    default_target: True
    input:
        "results/report.html",
        # Records and shards are named here because Snakemake makes a missing file again only if a target names it.
        TARGETS.specs.keys(),
        rules.corpus.input if CONFIG.reads("corpus") else [],
        rules.images.input if CONFIG.folders("images") else [],
        rules.faces.input if CONFIG.folders("faces") else [],
        rules.clicks.input if CLICKS_TARGETS.files()[0] in TARGETS.manifests() else [],


onstart:
    made = the_plan()
    try:
        plan.check_places(made.pending)
        CORPUS_TARGETS.check_kept(made.pending)
        lock.unclaimed(made.pending)
        devices = reserved_devices(made.pending)
    except UserError as error:
        raise WorkflowError(str(error))
    logger.info("\n".join([*devices, str(made)]), extra={"event": "plan", "plan": made})


onsuccess:
    shell(f"rm -f {plan.SO_FAR}")
    logger.info(the_plan().outcome(), extra={"event": "outcome"})


onerror:
    logs = {str(job.output[0]): str(job.log[0]) for job in workflow.dag.needrun_jobs() if job.output and job.log}
    asked = cells.asked_for(SPECS)
    shell("python workflow/scripts/report_incomplete.py --expected {asked:q} --output {plan.SO_FAR}")
    atexit.register(print, plan.failures(logs), file=sys.stderr)  # printed last, after Snakemake's own output
