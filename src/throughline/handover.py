"""What one call of Snakemake hands to its jobs: a JSON document in the environment variable THROUGHLINE_CALL.

    hosts          benchmark -> the names in its runs.hosts
    checkpoints    benchmark -> the folder of its runs.checkpoints
    strict         benchmarks with runs.strict
    programs       name -> folder, Python, variables and limits of a program (study/program_section.py)
    models         SHA-256 -> path of a model's config.json
    configuration  the merged configuration, without names of hosts and paths (study/runs.py)
    started_with   words of the command of Snakemake that name the Snakefile and the configuration (files.py)
    gpu, cards     which builds of environments the user wants, and the GPUs that decide (installation/choose.py)
    topologies     device, threads and largest number of nodes -> nodes, devices and words (launch/auto_topologies.py)
    skipped        blocks that are for another kind of device -> that kind (the same)
    devices        framework -> the largest run that waits for its environment (launch/gpu_builds.py)
    progress_s     seconds between two lines about the progress of a run
    contact        corpus.contact, for every download
    mirrors        corpus.mirrors

None of these values changes a result. So they are no parameters of rules, and another host, path or contact makes
nothing again. They are no words of a command line either, so names of hosts appear in no log. Submitted jobs inherit
the variable: they keep what the main process has found out, such as the GPUs of its machine.
"""

import json
import os
from collections.abc import Mapping, MutableMapping
from typing import Any

VARIABLE = "THROUGHLINE_CALL"


def get(name: str, default: Any = None, variables: Mapping[str, str] = os.environ) -> Any:
    """Return a value of the document, or `default` if the workflow has handed over none."""
    return json.loads(variables.get(VARIABLE) or "{}").get(name, default)


def add(variables: MutableMapping[str, str] = os.environ, /, **values: Any) -> None:
    """Hand these values to the processes that this process starts, beside those that are there."""
    variables[VARIABLE] = packed(**json.loads(variables.get(VARIABLE) or "{}") | values)


def packed(**values: Any) -> str:
    """Return the document as the value of the variable."""
    return json.dumps(values)
