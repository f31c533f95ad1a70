"""Say whether a fleet of nodes is fit, for a prolog or a nightly job.

The exit status is 0 if it is fit, 1 if a device, node or link is slow or broken or a figure is below what is expected,
and 2 if the verdict is inconclusive: something was not measured, a node is away, nobody can tell whether a place is
slow, or there is no verdict to read. With --node it is about one node: 1 if a finding names this node or a pair with
it, or if a figure of its own is below what is expected, and 2 if the node was not measured or is not known.

file: results/acceptance.json, which `snakemake accept` makes
node: the name of a node, as results/acceptance.local.json has it
"""

import sys
from pathlib import Path


def main(file: Path = Path("results/acceptance.json"), /, node: str | None = None) -> int:
    from throughline.acceptance import verdict
    from throughline.files import UserError
    from throughline.launch import fleet
    from throughline.records import read_acceptance
    from throughline.records.acceptance import STATUS
    from throughline.study.acceptance import LOCAL

    try:
        if not file.exists():
            raise UserError(f"{file} does not exist", next_step="snakemake accept, with --profile slurm on a cluster")
        accepted, names = read_acceptance(file), fleet.node_names(file.with_name(Path(LOCAL).name))
        status, lines = STATUS[accepted.verdict], list(verdict.lines(accepted))
        if node:
            status, lines = verdict.of_node(accepted, verdict.node_number(node, names))
    except (UserError, OSError, RecursionError) as error:  # not 1, because nothing is known to be slow
        print(f"error: {error}", file=sys.stderr)
        return STATUS["inconclusive"]
    for line in lines:
        print(line)
    if accepted.ended:
        print(f"Measured from {accepted.started} to {accepted.ended}.")
    if verdict.can_be_measured(accepted) and not node:
        print("Next: bring back what is away, fix what failed, and call snakemake accept again in the same way.")
        print("It measures only what is missing.")
    if not node and accepted.asked["fleet"]["hosts"] != "simulated":
        called = [f"node {number} is {names[number]}" for number in verdict.named(accepted) if number in names]
        sys.stdout.writelines([", ".join(called), "\n" * bool(called)])  # `print` masks the names of machines
    return status
