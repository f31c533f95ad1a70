# What rules/accept.smk asks: which nodes there are, what a node job measures there, and what it needs.
import atexit
import functools

from throughline.console import node_jobs
from throughline.launch import away, fleet, lost_nodes
from throughline.study import acceptance, result_sections

NODE_FILES = fleet.NodeFiles()
atexit.register(NODE_FILES.remove)


@functools.cache
def accepted():
    """The nodes of an acceptance, and what it measures there. Asked only if somebody wants an acceptance."""
    settled = answered(fleet.settled) if INSIDE.is_submitted else answered(settled_now)
    return settled, acceptance.asked(CONFIG, settled.fleet)


def partition_of_accept():
    """Slurm's partition whose nodes are measured; None: Slurm's default."""
    chosen, default = INSIDE.resource("accept_visit", "slurm_partition")
    return next(map(str, filter(None, (chosen, CONFIG.accept.partition, default))), None)


def settled_now():
    """Ask for the nodes, and keep their numbers and names for the jobs of this call and for later calls."""
    settled = fleet.find(CONFIG.accept, INSIDE.submits, partition_of_accept())
    if not INSIDE.is_dry_run:
        settled.write()
    return settled


def visit_of(wildcards):
    """The measurements of a node job."""
    _, made = accepted()
    return answered(pick, made.visits(), acceptance.VISIT.format(**wildcards), "the node job {}")


def visits_now(_):
    """The files of all node jobs whose nodes are there. Those of nodes that are away are made by a later call."""
    settled, made = accepted()
    files = [file for file, visit in made.visits().items() if not settled.away.keys() & set(visit[0].place.nodes)]
    if all(map(os.path.exists, files)):  # no plan is printed then, because there may be nothing to do
        say_who_is_away()
    return files


@functools.cache
def say_who_is_away():
    for node, why in accepted()[0].away.items():
        logger.warning(f"node {node} is left out, because {why}; a later call measures it")


def planned_node_jobs(jobs):
    """The node jobs of an acceptance that have to be made; None if there are none."""
    made_now = (output for outputs in jobs for output in outputs)
    pending = {file for file in made_now if file.startswith(acceptance.FOLDER) and Path(file).name.startswith("visit")}
    if not pending:
        return None
    settled, made = accepted()
    return node_jobs.planned(made.visits(), pending, settled.fleet, settled.away, INSIDE.submits)


def is_by_ssh(visit):
    return visit[0].spec.hosts == "ssh"


def nodes_of_visit(wildcards):
    """How many nodes a node job gets from Slurm."""
    return len(visit_of(wildcards)[0].place.nodes) if INSIDE.submits or INSIDE.is_submitted else 1


def largest_spec(wildcards):
    """The specification of a node job with the most ranks on a node."""
    return max((measured.spec for measured in visit_of(wildcards)), key=lambda spec: shape_of_spec(spec).devices)


def threads_of_visit(wildcards):
    """The cores of this machine that a node job takes. Those to other hosts share them, to go side by side."""
    visit = visit_of(wildcards)
    if not is_by_ssh(visit):
        return workflow.cores
    settled, _ = accepted()
    return max(1, workflow.cores // len(settled.fleet.nodes) * len(visit[0].place.nodes))


def cores_of_visit(wildcards):
    """The cores that a node job asks for on each node: one for each thread; with GPUs on Slurm, all that a node has."""
    spec = largest_spec(wildcards)
    if INSIDE.submits and spec.device != "cpu":
        return answered(slurm_partition.cores, partition_of_accept())
    return shape_of_spec(spec).devices * spec.threads


def slurm_options_of_visit(wildcards):
    """Further options for Slurm: on the nodes of this place, which nobody else uses meanwhile."""
    options = f"{slurm_options_of_spec(largest_spec(wildcards))} --exclusive"
    if not INSIDE.submits:
        return options
    settled, _ = accepted()
    names = [settled.names[node] for node in visit_of(wildcards)[0].place.nodes]
    return f"{options} --nodefile={shlex.quote(str(NODE_FILES.file(names)))}"


def priority_of_visit(wildcards):
    """The priority of a node job: higher the earlier it stands in the order of all node jobs."""
    _, made = accepted()
    return made.priorities[acceptance.VISIT.format(**wildcards)]


def watch_nodes(made):
    """Give up node jobs that wait for a node which goes down while they are in Slurm's queue."""
    if made.node_jobs and INSIDE.submits:
        lost_nodes.watch(accepted()[0].names, partition_of_accept(), logger.warning)


def judge_what_is_there():
    """Judge the records that are there if node jobs have failed, so that they cost their own figures only."""
    files = [str(file) for job in INSIDE.jobs(finished=False) for file in job.output]
    if acceptance.RESULT in files:
        asked, absent = accepted()[1].text, away.text(accepted()[0])
        shell(
            f"python {started(script_of('accept_verdict'))}"
            " --acceptance {asked:q} --away {absent:q} --output {acceptance.RESULT} --text results/acceptance.txt"
            " --page results/acceptance.html --standings {acceptance.STANDINGS} --pairs {acceptance.PAIRS}"
            " || true"  # its own failure is in its log, and hides no other one
        )


# The comparison and the archive take the acceptance that is there. It is no input of theirs, because then they would
# measure what is missing of it. Only if the same call makes an acceptance, they wait for it.


def acceptance_now(_):
    """The acceptance, if this call makes it anyway."""
    made = any(target == "accept" or target.startswith("results/acceptance") for target in INSIDE.asked)
    return [acceptance.RESULT] if made else []


def words_of_acceptance(wildcards):
    """The acceptance that is there, or that this call makes, as words of a command line."""
    there = Path(acceptance.RESULT).is_file() or acceptance_now(wildcards)
    return ["--acceptance", acceptance.RESULT] if there else []


def state_of_acceptance(wildcards):
    """Digits that change with the acceptance."""
    return result_sections.files_digest([Path(acceptance.RESULT)])
