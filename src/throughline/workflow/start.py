"""What happens while Snakemake reads the Snakefile, before it reads rules/."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from snakemake.logging import logger

from throughline.console.console import Console
from throughline.launch.auto_topologies import AutoTopologies
from throughline.workflow import call
from throughline.workflow.call import WorkflowCall, or_exit
from throughline.workflow.handlers import Handlers
from throughline.workflow.inside import Inside, look_behind_ancient_files
from throughline.workflow.node_jobs import NodeJobs
from throughline.workflow.slurm_resources import SlurmResources


def start(workflow: Any) -> tuple[Inside, WorkflowCall, SlurmResources, NodeJobs, Handlers]:
    """Read the configuration, hand over to the jobs what they need, and show the console.

    The configuration is config.yaml, or the files after --configfile in its place. So the Snakefile has no
    `configfile:`, which would merge both. The commands of the rules use this Python; src/start.py finds the library.
    """
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
    look_behind_ancient_files()
    inside = Inside(workflow)
    if own_output := inside.own_output:
        logger.addHandler(Console(own_output, inside.is_quiet))
        logger.removeHandler(own_output)
    partition = next(map(str, filter(None, inside.resource("run", "slurm_partition"))), None)
    auto = AutoTopologies(inside.asks_for_cluster, partition)
    skipped = partial(auto.skipped, inside.named)
    made = or_exit(call.read, *inside.configuration, inside.root, auto, skipped, inside.is_deployed, logger.info)
    or_exit(call.hand_over, made.config, inside)
    slurm = SlurmResources(made.config, inside)
    node_jobs = NodeJobs(slurm)
    return inside, made, slurm, node_jobs, Handlers(made, inside, node_jobs, auto.lines)
