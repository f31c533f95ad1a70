"""How topologies are started: the commands of every launcher, for any number of nodes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import frameworks
from throughline.files import UserError
from throughline.launch import agent, lock, nodes
from throughline.launch.request import RunRequest
from throughline.messages import LaunchPlan, Question
from throughline.processes import START as FILE
from throughline.processes import wait_until
from throughline.rank import ranks
from throughline.spec import Topology


def started(plan: LaunchPlan, folder: str, path: str = "launch_plan.json") -> list[str]:
    """Return the command with which Horovod starts the ranks of a run."""
    starter = frameworks.of("torch-horovod").starter
    assert starter
    return starter.command(frameworks.specification(plan.spec), plan, path, folder)


START = str(FILE)


@pytest.mark.parametrize("topology", ["2n2g", "64n8g", "125n8g"])
def test_a_slurm_job_starts_one_agent_a_node(topology: str) -> None:
    job, shape = training_fixtures.plan(topology, "slurm", run={"threads": 3}), Topology.parse(topology)
    (command,) = nodes.commands(job, Path("/shared/launch_plan.json"))
    agent = command.index("/env/bin/python")
    for word in (f"--nodes={shape.nodes}", f"--ntasks={shape.nodes}", "--ntasks-per-node=1"):
        assert word in command[:agent]
    assert f"--cpus-per-task={3 * shape.devices}" in command[:agent]
    assert command[agent:] == [
        "/env/bin/python",
        START,
        "throughline.launch.agent",
        "/shared/launch_plan.json",
        "slurm",
    ]


@pytest.mark.parametrize("topology", ["2n2g", "64n8g", "125n8g"])
def test_every_rank_is_told_its_place_and_where_all_others_are(topology: str) -> None:
    job, shape = training_fixtures.plan(topology, "slurm"), Topology.parse(topology)
    assert [rank for node in range(shape.nodes) for rank in job.ranks_of(node)] == list(range(shape.world))
    addresses = [f"host{node}:{5000 + rank}" for node in range(shape.nodes) for rank in range(shape.devices)]
    told = ranks.variables(shape.world - 1, shape.devices - 1, addresses)
    assert ranks.of(told) == (shape.world - 1, shape.devices - 1, shape.world)
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("host0", "5000")
    assert told["RANK_ADDRESSES"].split(",") == addresses


def test_horovod_reaches_the_nodes_of_a_slurm_job_through_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = training_fixtures.plan("2n2g", "slurm", run={"framework": "torch-horovod"})
    (agents,) = nodes.commands(job, Path("launch_plan.json"))
    assert {"--ntasks=2", "--overlap"} <= set(agents) and job.ranks_of(1) == range(2, 4)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPU_BIND", "verbose")
    command = started(job, str(tmp_path), "/shared/launch_plan.json")
    assert command[:3] == ["env", "-u", "SLURM_CPU_BIND"], "the agent's step does not bind the steps of srun"
    assert command[4:] == [
        *("/env/bin/horovodrun", "-np", "4", "-H", "host0:2,host1:2", "--gloo"),
        *("/env/bin/python", START, "throughline.rank.worker", "/shared/launch_plan.json"),
    ]
    script(tmp_path, "srun", 'printf "%s\\n" "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    called = [
        str(tmp_path / "bin" / "ssh"),
        "-o",
        "StrictHostKeyChecking=no",
        "host1",
        "-p",
        "22",
        "cd '/a b'; python x",
    ]
    words = subprocess.run(called, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[-4:] == ["--nodelist=host1", "sh", "-c", "cd '/a b'; python x"] and "--overlap" in words


def test_horovod_on_one_machine_reaches_nobody(tmp_path: Path) -> None:
    job = training_fixtures.plan("1n2g", "here", run={"framework": "mxnet-horovod"})
    command = started(job, str(tmp_path))
    assert command[:4] == ["/env/bin/horovodrun", "-np", "2", "--gloo"]
    job.spec["options"]["controller"] = "mpi"
    command = started(job, str(tmp_path))
    assert command[:4] == ["mpirun", "--allow-run-as-root", "-np", "2"] and not {"-H", "-x"} & set(command)


def test_mpirun_takes_the_ranks_variables_along() -> None:
    run = {"hosts": "ssh", "framework": "torch-horovod", "options": {"controller": "mpi"}}
    job = training_fixtures.plan("2n1g", "ssh", run=run, variables={"PYTHONPATH": "src", "NCCL_IB_HCA": "mlx5_0"})
    text = " ".join(started(job, "folder"))
    assert "-H host0:1,host1:1 " in text and " -x NCCL_IB_HCA -x PYTHONPATH /env/bin/python /" in text


def test_simulated_nodes_are_agents_here_with_gpus_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    job = training_fixtures.plan("2n2g", "simulated", run={"hosts": "simulated"})
    assert [command[-1] for command in nodes.commands(job, Path("launch_plan.json"))] == ["0", "1"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [agent.gpus_of(job, node) for node in (0, 1)] == [["0", "1"], ["2", "3"]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert agent.gpus_of(job, 1) == ["6", "7"]


def test_on_simulated_nodes_every_rank_of_horovod_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One agent starts the ranks of all simulated nodes."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    run = {"hosts": "simulated", "framework": "torch-horovod"}
    job = training_fixtures.plan("2n2g", "simulated", run=run, kind="cuda")
    cards = agent.gpus_of(job, 0)
    assert [cards[rank % job.devices] for rank in job.ranks_of(0)] == ["4", "5", "6", "7"]
    job = training_fixtures.plan("2n2g", "slurm", run={"framework": "torch-horovod"}, kind="cuda")
    assert [rank % job.devices for node in (0, 1) for rank in job.ranks_of(node)] == [0, 1, 0, 1]


def test_hosts_are_reached_without_a_question_and_without_a_way_into_the_shell() -> None:
    first, second = nodes.commands(
        training_fixtures.plan("2n1g", "ssh", run={"hosts": "ssh"}), Path("/it's/launch_plan.json"), ["one", "ada@two"]
    )
    assert first[0] == "ssh" and "BatchMode=yes" in first and first[-3:-1] == ["--", "one"]
    assert second[-2] == "ada@two"
    folder, rest = second[-1].split(" && ", 1)
    assert shlex.split(folder) == ["cd", os.getcwd()]
    words = shlex.split(rest)
    assert words[:4] == ["exec", "env", "OMP_NUM_THREADS=1", "X=a b"]
    assert words[4:] == ["/env/bin/python", START, "throughline.launch.agent", "/it's/launch_plan.json", "1"]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4)),
        ({"HOROVOD_RANK": "1", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 0, 4)),
    ],
)
def test_a_rank_knows_its_place_from_its_starter(given: dict[str, str], place: tuple[int, int, int]) -> None:
    assert ranks.of(given) == place
    with pytest.raises(RuntimeError, match="no starter"):
        ranks.of({"RANK": "3"})


def test_several_nodes_need_a_place() -> None:
    spec = training_fixtures.spec(topology="2n1g")
    with pytest.raises(UserError, match=r"--profile slurm.*simulated"):
        nodes.find(spec, [], {})
    with pytest.raises(UserError, match="needs 2 hosts"):
        nodes.find(training_fixtures.spec(topology="2n1g", hosts="ssh"), ["one"], {})
    assert nodes.find(training_fixtures.spec(topology="2n1g", hosts="simulated"), [], {}).kind == "simulated"
    found = nodes.find(training_fixtures.spec(hosts="ssh"), ["ada@one.example", "two"], {})
    assert found.elsewhere and "one" not in repr(found)


def script(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_the_nodes_of_a_slurm_job_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "squeue", """case "$*" in *cpus-per-task*) echo "96   ";; *) echo 'big[7-8]';; esac""")
    script(tmp_path, "scontrol", '[ "$3" = "big[7-8]" ] && printf "big7\\nbig8\\n"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    allocated = nodes.find(training_fixtures.spec(topology="2n4g"), [], {"SLURM_JOB_ID": "5"})
    assert (allocated.kind, allocated.names, allocated.cores) == ("slurm", ("big7", "big8"), 96)
    with pytest.raises(UserError, match="needs 3 nodes, and the Slurm job has 2"):
        nodes.find(training_fixtures.spec(topology="3n4g"), [], {"SLURM_JOB_ID": "5"})


def test_answers_through_srun_come_in_pieces() -> None:
    first, second = (json.dumps({"node": node, "text": "x: " * 500}) for node in (0, 1))
    output = ["a library says 0: hello", f" 0: {first[:1024]}", f"10: {second[:1024]}", f" 0: {first[1024:]}"]
    assert nodes.joined("\n".join([*output, f"10: {second[1024:]}", "10: "])) == [first, second]


def question(**changes: Any) -> Question:
    value = {"framework": "torch", "model": "bert-tiny", "device": "cpu", "seen": "run1.log", "record": "run1.json"}
    return Question(**{**value, "ranks": 1, "threads": 1, "strict": False, "rank_bytes": 0, **changes})


def answer(**changes: Any) -> str:
    """Return a command that prints what a node with two GPUs reports about itself."""
    cpu = {"kind": "cpu", "name": "a processor", "count": 4, "fp16_native": None}
    gpus = {"kind": "cuda", "count": 2, "name": "A100", "fp16": True}
    value = {"node": 0, "sees_files": True, "software": {"torch": "2.13"}, "gpus": gpus, "cpu": cpu}
    value |= {"environment": {}, "warnings": [], "refused": None, **changes}
    return f"echo '{json.dumps(value)}'"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo 'ssh: connect to host two port 22: No route' >&2; exit 255", "entry 2 of runs.hosts cannot be reached"),
        ("echo 'env: python: not found' >&2; exit 127", "entry 2 of runs.hosts cannot run"),
        (
            "echo '{\"node\": 0}'",
            "entry 2 of runs.hosts gives an unexpected answer (Answer: missing",
        ),
        (answer(sees_files=False), "entry 2 of runs.hosts does not see this project's files"),
        (
            answer(software={"torch": "2.1"}),
            "entry 2 of runs.hosts has torch 2.1, the first has 2.13",
        ),
    ],
)
def test_hosts_are_checked_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    script(tmp_path, "ssh", f'case "$*" in *"-- one "*) {answer()};; *) {body};; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError) as error:
        nodes.ask(nodes.Nodes("ssh", ("one", "two"), in_runs_hosts=True), question(), "python", {})
    assert message in str(error.value) and "host two" not in str(error.value)
    same, warnings = nodes.ask(nodes.Nodes("ssh", ("one", "one")), question(), "python", {})
    assert same.software == {"torch": "2.13"} and warnings == []
    accepted = nodes.find(training_fixtures.spec(topology="2n1g", hosts="ssh"), ["one", "two"], {}, in_runs_hosts=False)
    with pytest.raises(UserError) as error:
        nodes.ask(accepted, question(), "python", {})
    assert message.replace("entry 2 of runs.hosts", "node 1") in str(error.value)


@pytest.mark.parametrize("of_acceptance", [False, True])
def test_the_hosts_of_an_acceptance_are_no_entries_of_runs_hosts(
    of_acceptance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = training_fixtures.spec(hosts="ssh")
    request = RunRequest(spec, Path("a.json"), Path("a.log"), hosts=["one"], side_by_side=of_acceptance)
    asked: list[nodes.Nodes] = []

    def ask(found: nodes.Nodes, *_: Any) -> Any:
        asked.append(found)
        raise UserError("asked")

    monkeypatch.setattr(nodes, "ask", ask)
    with pytest.raises(UserError, match="asked"):
        nodes.survey(request)
    assert asked[0].in_runs_hosts != of_acceptance


def test_nodes_that_differ_are_told_and_the_fewest_gpus_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lesser = answer(gpus={"kind": "cuda", "count": 1, "name": "V100", "fp16": True}, environment={"kernel": "5.4"})
    script(tmp_path, "ssh", f'case "$*" in *"-- one "*) {answer(environment={"kernel": "6.1"})};; *) {lesser};; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    both = nodes.Nodes("ssh", ("one", "two"), in_runs_hosts=True)
    first, (warning,) = nodes.ask(both, question(), "python", {})
    assert first.gpus.count == 1 and warning.startswith("node 1: it is not like node 0 (kernel is 5.4, not 6.1; ")
    assert "GPU is V100, not A100" in warning
    with pytest.raises(UserError, match=r"entry 2 of runs.hosts: it is not like node 0 .*\n.*runs.strict"):
        nodes.ask(both, question(strict=True), "python", {})


def test_a_record_has_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim of a job in the queue holds. The claim of a job that is over does not, nor does that of the same job
    before a restart."""
    record = tmp_path / "run1.json"
    script(tmp_path, "squeue", 'case "$3" in 7) echo RUNNING;; *) echo "Invalid job id specified" >&2; exit 1;; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    running, over = tmp_path / ".run1.7.claim", tmp_path / ".run1.8.claim"
    for claim in (running, over):
        claim.write_text("2026-11-20T12:00:00Z")
    refused = pytest.raises(UserError, match=r"measured by Slurm job 7 since 2026.*\n.*\n.*scancel 7")
    with refused, lock.record(record, {"SLURM_JOB_ID": "9"}):
        pass
    with pytest.raises(UserError, match="Slurm job 7"):
        lock.unclaimed([str(record)])
    with lock.record(record, {"SLURM_JOB_ID": "7"}):
        assert list(tmp_path.glob(".*.claim")) == [running]
    assert not list(tmp_path.glob(".*.claim"))
    with lock.record(record, {}):
        lock.unclaimed([str(record)])
        assert not list(tmp_path.glob(".*.claim"))


def test_two_jobs_that_find_a_stale_claim_together_do_not_both_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both jobs have asked Slurm about the claim before one of them goes on. It is the first claim that they look at:
    they take claims in the order of their names."""
    (tmp_path / ".run1.1.claim").write_text("2026-11-20T12:00:00Z")
    script(
        tmp_path,
        "squeue",
        f"""case "$3" in
          1) touch {tmp_path}/asked.$$; until [ $(ls {tmp_path}/asked.* | wc -l) = 2 ]; do sleep 0.05; done
             echo "Invalid job id specified" >&2; exit 1;;
          *) echo RUNNING;; esac""",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    writers: list[str] = []
    refused: list[str] = []

    def measure(job: str) -> None:
        try:
            with lock.record(tmp_path / "run1.json", {"SLURM_JOB_ID": job}):
                writers.append(job)
                wait_until(lambda: bool(refused) or len(writers) > 1, 60)
        except UserError:
            refused.append(job)

    jobs = [threading.Thread(target=measure, args=(job,)) for job in ("9", "10")]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(list(tmp_path.glob("asked.*"))) == 2
    assert len(writers) < 2
    measure("9")
    assert writers[-1] == "9"


@pytest.mark.parametrize("kind", ["a link", "open to others", "its own"])
def test_a_lock_among_the_temporary_folders_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder, elsewhere = tmp_path / f"throughline-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "a link":
        folder.symlink_to(elsewhere)
    elif kind == "open to others":
        folder.mkdir()
        folder.chmod(0o777)
    (tmp_path / "file").touch()
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path / "file" / "no folder"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if kind == "its own":
        with lock.device("results/a.json", print):
            assert folder.stat().st_mode & 0o777 == 0o700 and any(folder.iterdir())
    else:
        with pytest.raises(UserError, match=r"it is a link, or others may write"), lock.device("results/a.json", print):
            pass
        assert not any(elsewhere.iterdir())


def test_runs_on_different_hosts_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))
    told: list[str] = []
    with lock.device("first", told.append, machines=["a", "b"]), lock.device("here", told.append):
        with lock.device("second", told.append, machines=["c"]):
            assert not told
        with pytest.raises(InterruptedError), lock.device("third", told.append, lambda: bool(told), ["c", "b"]):
            pass
        assert "measures first" in told[0]
        with lock.device("fourth", told.append, machines=["c"]):
            assert len(told) == 1, "who waits for one host keeps no other one"
    with lock.device("fifth", told.append, machines=["b", "c"]):
        assert len(told) == 1
