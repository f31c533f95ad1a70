"""Throughline: Wikipedia dump -> pre-training data -> repeated training runs -> medians, speedups, a report.

snakemake                                      everything that config.yaml asks for
snakemake corpus                               the data alone
snakemake results/bert/bz64_fp16.json          one configuration: its topologies and repeats, then medians
snakemake data/sample/seq32/training_0007.hdf5 one shard
"""

import atexit
import os
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "src"))
# The commands of the rules run this Python, and find the library.
os.environ.update(PYTHONPATH=sys.path[0], PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

from snakemake.exceptions import WorkflowError

from throughline import frameworks, recipes, sources, workloads
from throughline.checks import convergence_check, equivalence, max_batch
from throughline.files import UserError
from throughline.launch import lock
from throughline.report.analysis import cells
from throughline.study import plan, runs
from throughline.study.config import load
from throughline.study.section import canonical

if Path.cwd() != ROOT:
    raise WorkflowError(f"Snakemake has to run in the project's root, {ROOT}")

try:
    CONFIG = load(
        workflow.config_settings.configfiles or ["config.yaml"],
        workflow.config_settings.config,
        frameworks=frameworks.NAMES,
    )
    SPECS = {spec.record: spec for spec in runs.expand(CONFIG)}
except UserError as error:
    raise WorkflowError(str(error))

SUMMARIES = runs.by_summary(SPECS.values())
BENCHMARKS = list(dict.fromkeys(spec.benchmark for spec in SPECS.values()))


include: "rules/common.smk"
include: "rules/placement.smk"
include: "rules/corpus.smk"
include: "rules/environments.smk"
include: "rules/training.smk"
include: "rules/equivalence.smk"
include: "rules/max_batch.smk"
include: "rules/convergence.smk"
include: "rules/results.smk"
include: "rules/report.smk"


wildcard_constraints:
    corpus="[a-z][a-z0-9_]*",
    sequence=r"[1-9]\d*",
    split="training|test",
    number=r"\d{4}",
    part=r"\d{4}",
    dump=r"[a-z0-9_-]+",
    benchmark="[a-z][a-z0-9_]*",
    batch=r"[1-9]\d*",
    precision="fp32|tf32|bf16|fp16",
    framework="[a-z][a-z0-9-]*",
    digest="[0-9a-f]{12}",
    topology=r"[1-9]\d*n[1-9]\d*g",
    repeat=r"[1-9]\d*",


resource_scopes:
    bench_slot="local",


rule all:
    default_target: True
    input:
        "results/report.html",
        SPECS.keys(),  # by name, like the shards: Snakemake makes a missing file again only where it is asked for
        rules.corpus.input,


onstart:
    pending = {str(output) for job in workflow.dag.needrun_jobs() for output in job.output}
    try:
        plan.check_places(pending)
        lock.unclaimed(pending)
    except UserError as error:
        raise WorkflowError(str(error))
    print(plan.describe(list(SPECS.values()), pending), file=sys.stderr)


onsuccess:
    shell("rm -f results/report-incomplete.html")
    print(plan.outcome("results/report.html"), file=sys.stderr)


onerror:
    logs = {str(job.output[0]): str(job.log[0]) for job in workflow.dag.needrun_jobs() if job.output and job.log}
    atexit.register(print, plan.failures(logs), file=sys.stderr)  # the last words, after Snakemake's own
    asked = cells.asked_for(SPECS.values())
    shell(
        "python workflow/scripts/report_incomplete.py --expected {asked:q} --output results/report-incomplete.html"
    )
