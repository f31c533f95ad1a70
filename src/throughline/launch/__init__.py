"""Launch: take a specification, start the processes of a run, and write its record.

In the order of a run: request.py has what the launcher is asked for, launcher.py the steps of a run, lock.py the locks.
survey.py decides what follows from the nodes: nodes.py finds, reaches and asks them, and each answers with machine.py.
supervision.py starts one agent per node (agent.py) and watches it. outcome.py makes the measured part of the record
from the ranks' reports. docs/contributing/architecture.md has a picture.

Around it: auto_topologies.py and slurm_partition.py find devices before any run, fleet.py finds the nodes of an
acceptance, and node_job.py makes the runs of one of its jobs.

This package may import rank/, observe/ and all packages below them, but no check and no report. agent.py and machine.py
run in a framework's environment as well: they import only the standard library and what a rank has.
"""
