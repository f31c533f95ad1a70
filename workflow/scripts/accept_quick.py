"""Let every node check itself, all at once, and say which of them have not passed. No node is waited for in vain.

acceptance: what was asked for, as JSON
output: quick.json
srun: options of Slurm for the check of a node; none without Slurm
away: why nodes cannot be measured now, by their numbers, as JSON
environment: the workers' environment, as FRAMEWORK=NAME; may be repeated
"""

import os
from collections.abc import Sequence
from pathlib import Path


def main(
    acceptance: str,
    output: Path,
    srun: Sequence[str] = (),
    away: dict[str, str] | None = None,
    environment: Sequence[str] = (),
) -> None:
    from dataclasses import replace

    from throughline import files, records
    from throughline.acceptance import verdict
    from throughline.archive import accepted
    from throughline.launch import fleet
    from throughline.launch.quick_check import Checks
    from throughline.study.acceptance import read_plan

    asked = replace(read_plan(acceptance), rounds=0)  # rounds are of pairs of nodes
    names = {} if asked.fleet.hosts == "simulated" else fleet.node_names()
    if names:  # logs call them node0, node1, ...
        os.environ[files.NODES] = accepted.names()
    absent = {int(node): why for node, why in (away or {}).items()}
    words = [f"--environment={name}" for name in environment]
    script = Path(__file__).with_name("accept_visit.py")
    Checks(asked, script, words, srun, names).run(absent, lambda text: print(text, flush=True))
    bad = verdict.not_passed(verdict.judge(asked, away=absent))
    for node, why in bad.items():
        print(f"node {node} has not passed: {why}")
    files.write_json(output, {"schema": records.SCHEMA, "not_passed": {str(node): why for node, why in bad.items()}})
