"""How nodes are found, reached and asked, and the commands that start agents and ranks on any number of them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import frameworks
from throughline.files import UserError
from throughline.launch import agent, nodes
from throughline.launch.request import RunRequest
from throughline.launch.survey import survey_nodes
from throughline.messages import LaunchPlan, Question
from throughline.processes import START
from throughline.rank import ranks
from throughline.spec import Topology
from unit.launch.conftest import Program

PLAN = Path("/it's/launch_plan.json")
AGENT = ["/env/bin/python", str(START), "throughline.launch.agent", str(PLAN)]


def horovod(plan: LaunchPlan, folder: str = "folder") -> list[str]:
    """Return the command with which Horovod starts the ranks of a run."""
    starter = frameworks.of("torch-horovod").starter
    assert starter
    return starter.command(frameworks.specification(plan.spec), plan, str(PLAN), folder)


@pytest.mark.parametrize("topology", ["2n2g", "125n8g"])
def test_a_slurm_job_starts_one_agent_a_node_and_every_rank_gets_its_place(topology: str) -> None:
    plan, shape = training_fixtures.plan(topology, "slurm", run={"threads": 3}), Topology.parse(topology)
    (command,) = nodes.commands(plan, PLAN)
    words = {f"--nodes={shape.nodes}", f"--ntasks={shape.nodes}", f"--cpus-per-task={3 * shape.devices}"}
    assert words <= set(command) and command[-5:] == [*AGENT, "slurm"]
    assert [rank for node in range(shape.nodes) for rank in plan.ranks_of(node)] == list(range(shape.world))
    addresses = [f"host{node}:{5000 + rank}" for node in range(shape.nodes) for rank in range(shape.devices)]
    variables = ranks.variables(shape.world - 1, shape.devices - 1, addresses)
    assert ranks.read_place(variables) == (shape.world - 1, shape.devices - 1, shape.world)
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("host0", "5000")
    assert variables["RANK_ADDRESSES"].split(",") == addresses


def test_horovod_reaches_the_nodes_of_a_slurm_job_through_srun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    plan = training_fixtures.plan("2n2g", "slurm", run={"framework": "torch-horovod"})
    (agents,) = nodes.commands(plan, PLAN)
    assert {"--ntasks=2", "--overlap"} <= set(agents) and plan.ranks_of(1) == range(2, 4)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPU_BIND", "verbose")
    command = horovod(plan, str(tmp_path))
    assert command[:3] == ["env", "-u", "SLURM_CPU_BIND"], "the agent's step does not bind the steps of srun"
    worker = ("/env/bin/python", str(START), "throughline.rank.worker", str(PLAN))
    assert command[4:] == ["/env/bin/horovodrun", "-np", "4", "-H", "host0:2,host1:2", "--gloo", *worker]
    program("srun", 'printf "%s\\n" "$@"')
    ssh = [f"{tmp_path}/bin/ssh", "-o", "StrictHostKeyChecking=no", "host1", "-p", "22", "cd '/a b'; python x"]
    words = subprocess.run(ssh, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[-4:] == ["--nodelist=host1", "sh", "-c", "cd '/a b'; python x"] and "--overlap" in words


def test_horovod_on_one_machine_reaches_nobody_and_mpirun_takes_variables_to_hosts() -> None:
    plan = training_fixtures.plan("1n2g", "here", run={"framework": "mxnet-horovod"})
    assert horovod(plan)[:4] == ["/env/bin/horovodrun", "-np", "2", "--gloo"]
    plan.spec["options"]["controller"] = "mpi"
    command = horovod(plan)
    assert command[:4] == ["mpirun", "--allow-run-as-root", "-np", "2"] and not {"-H", "-x"} & set(command)
    run = {"hosts": "ssh", "framework": "torch-horovod", "options": {"controller": "mpi"}}
    plan = training_fixtures.plan("2n1g", "ssh", run=run, variables={"PYTHONPATH": "src", "NCCL_IB_HCA": "mlx5_0"})
    text = " ".join(horovod(plan))
    assert "-H host0:1,host1:1 " in text and " -x NCCL_IB_HCA -x PYTHONPATH /env/bin/python /" in text


def test_simulated_nodes_are_agents_here_whose_ranks_have_gpus_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One agent starts the ranks of Horovod on all simulated nodes."""
    run = {"hosts": "simulated"}
    plan = training_fixtures.plan("2n2g", "simulated", run=run)
    assert [command[-1] for command in nodes.commands(plan, PLAN)] == ["0", "1"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [agent.gpus_of(plan, node) for node in (0, 1)] == [["0", "1"], ["2", "3"]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert agent.gpus_of(plan, 1) == ["6", "7"]
    plan = training_fixtures.plan("2n2g", "simulated", run=run | {"framework": "torch-horovod"}, kind="cuda")
    cards = agent.gpus_of(plan, 0)
    assert [cards[rank % plan.devices] for rank in plan.ranks_of(0)] == ["4", "5", "6", "7"]
    plan = training_fixtures.plan("2n2g", "slurm", run={"framework": "torch-horovod"}, kind="cuda")
    assert [rank % plan.devices for node in (0, 1) for rank in plan.ranks_of(node)] == [0, 1, 0, 1]


def test_hosts_are_reached_without_a_question_and_without_a_way_into_the_shell() -> None:
    first, second = nodes.commands(training_fixtures.plan("2n1g", "ssh", run={"hosts": "ssh"}), PLAN, ["one", "a@two"])
    assert (first[0], first[-3:-1], second[-2]) == ("ssh", ["--", "one"], "a@two")
    assert {"BatchMode=yes", "ServerAliveInterval=5"} <= {*first}
    folder, rest = second[-1].split(" && ", 1)
    assert shlex.split(folder) == ["cd", os.getcwd()]
    assert shlex.split(rest) == ["exec", "env", "OMP_NUM_THREADS=1", "X=a b", *AGENT, "1"]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4)),
        ({"HOROVOD_RANK": "1", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 0, 4)),
    ],
)
def test_a_rank_reads_its_place_from_its_starter(given: dict[str, str], place: tuple[int, int, int]) -> None:
    assert ranks.read_place(given) == place
    with pytest.raises(RuntimeError, match="no starter"):
        ranks.read_place({"RANK": "3"})


def test_several_nodes_need_a_place(program: Program) -> None:
    two, three = training_fixtures.spec(topology="2n4g"), training_fixtures.spec(topology="3n4g")
    with pytest.raises(UserError, match=r"--profile slurm.*simulated"):
        nodes.find(two, [], {})
    with pytest.raises(UserError, match="needs 2 hosts"):
        nodes.find(training_fixtures.spec(topology="2n1g", hosts="ssh"), ["one"], {})
    assert nodes.find(training_fixtures.spec(topology="2n1g", hosts="simulated"), [], {}).kind == "simulated"
    behind_ssh = nodes.find(training_fixtures.spec(hosts="ssh"), ["ada@one.example", "two"], {})
    assert behind_ssh.elsewhere and "one" not in repr(behind_ssh)
    program("squeue", """case "$*" in *cpus-per-task*) echo "96   ";; *) echo 'big[7-8]';; esac""")
    program("scontrol", '[ "$3" = "big[7-8]" ] && printf "big7\\nbig8\\n"')
    in_slurm = nodes.find(two, [], {"SLURM_JOB_ID": "5"})
    assert (in_slurm.kind, in_slurm.names, in_slurm.cores) == ("slurm", ("big7", "big8"), 96)
    with pytest.raises(UserError, match=r"(?s)needs 3 nodes, and the Slurm job has 2.*--profile slurm.*--nodes=3"):
        nodes.find(three, [], {"SLURM_JOB_ID": "5"})


def test_answers_through_srun_come_in_pieces() -> None:
    first, second = (json.dumps({"node": node, "text": "x: " * 500}) for node in (0, 1))
    output = ["a library says 0: hello", f" 0: {first[:1024]}", f"10: {second[:1024]}", f" 0: {first[1024:]}"]
    assert nodes.joined("\n".join([*output, f"10: {second[1024:]}", "10: "])) == [first, second]


def question(**changes: Any) -> Question:
    value = {"framework": "torch", "model": "bert-tiny", "device": "cpu", "seen": "run1.log", "record": "run1.json"}
    return Question(**{**value, "ranks": 1, "threads": 1, **changes})


def answer(**changes: Any) -> str:
    """Return a command that prints what a node with two GPUs reports about itself."""
    cpu = {"kind": "cpu", "name": "a processor", "count": 4, "fp16_native": None}
    gpus = {"kind": "cuda", "count": 2, "name": "A100", "fp16": True}
    value = {"node": 0, "sees_files": True, "software": {"torch": "2.13"}, "gpus": gpus, "cpu": cpu}
    return f"echo '{json.dumps(value | {'environment': {}, 'warnings': [], 'refused': None, **changes})}'"


BOTH = nodes.Nodes("ssh", ("one", "two"), in_runs_hosts=True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo 'ssh: connect to host two port 22: No route' >&2; exit 255", "cannot be reached"),
        ("echo 'env: python: not found' >&2; exit 127", "cannot run"),
        ("echo '{\"node\": 0}'", "gives an unexpected answer (Answer: missing"),
        (answer(sees_files=False), "does not see this project's files"),
        (answer(software={"torch": "2.1"}), "has torch 2.1, the first has 2.13"),
    ],
)
def test_hosts_are_checked_before_anything_runs(program: Program, body: str, message: str) -> None:
    """The hosts of an acceptance are no entries of runs.hosts."""
    program("ssh", f'case "$*" in *"-- one "*) {answer()};; *) {body};; esac')
    spec = training_fixtures.spec(topology="2n1g", hosts="ssh")
    with pytest.raises(UserError) as error:
        nodes.ask(BOTH, question(), "python", {})
    assert f"entry 2 of runs.hosts {message}" in str(error.value) and "host two" not in str(error.value)
    request = RunRequest(spec, Path("a.json"), Path("a.log"), hosts=BOTH.names, side_by_side=True)
    with pytest.raises(UserError) as error:
        survey_nodes(request)
    assert f"node 1 {message}" in str(error.value)


def test_nodes_that_differ_are_a_warning_and_the_fewest_gpus_count(program: Program) -> None:
    lesser = answer(gpus={"kind": "cuda", "count": 1, "name": "V100", "fp16": True}, environment={"kernel": "5.4"})
    program("ssh", f'case "$*" in *"-- one "*) {answer(environment={"kernel": "6.1"})};; *) {lesser};; esac')
    alike, warnings = nodes.ask(nodes.Nodes("ssh", ("one", "one")), question(), "python", {})
    assert (alike.gpus.count, warnings) == (2, [])
    first, (warning,) = nodes.ask(BOTH, question(), "python", {})
    assert first.gpus.count == 1 and warning.startswith("node 1: it is not like node 0 (kernel is 5.4, not 6.1; ")
    assert "GPU is V100, not A100" in warning
    with pytest.raises(UserError, match=r"entry 2 of runs.hosts: it is not like node 0 .*\n.*runs.strict"):
        nodes.ask(BOTH, question(strict=True), "python", {})
