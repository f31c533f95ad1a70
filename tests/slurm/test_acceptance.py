"""An acceptance on a real Slurm cluster: a lost node costs only its own figures, every node job takes place on the
nodes that it names, and no file names them. `benchmarks/acceptance_slurm.py` makes nodes and links slow, which takes
longer.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile

import pytest

from slurm.conftest import Cluster, Project, copied, until
from throughline import records
from throughline.commands import accept
from throughline.study import acceptance

SHORT = """accept:
  {nodes: 2, repeats: 1, threads: 1, min_seconds: 0.5, device: cpu, measure: [matmul, all-reduce],
   sizes: {matmul: [256], all_reduce: [1024, 1048576]}}
"""
LOST = "try1"
PLACES = {"node0", "node1", "pair_0_1"}


@pytest.fixture(scope="module")
def project(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project of its own: an acceptance writes a file that names the nodes."""
    return copied(tmp_path_factory.mktemp("acceptance") / "project", cluster)


def findings(project: Project) -> set[str]:
    found = json.loads((project.path / acceptance.RESULT).read_text())["findings"]
    return {finding["place"]["words"] for finding in found}


def ran_on(project: Project) -> list[str]:
    """Return the nodes of each job of a node job that is over, in the order in which the jobs ended."""
    completed = (project.cluster.folder / "log" / "completed.txt").read_text().splitlines()
    ours = [line for line in completed if f"WorkDir={project.path} " in line and "JobState=COMPLETED" in line]
    return [found[1] for line in ours if (found := re.search(r"NodeList=(\S+)", line))]


def test_a_lost_node_is_measured_later(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict without the node is inconclusive, if nothing else is named already."""
    result = project.path / acceptance.RESULT
    (project.path / "accept.yaml").write_text(SHORT)
    shutil.rmtree(project.path / acceptance.FOLDER, ignore_errors=True)  # of an earlier try of this test
    result.unlink(missing_ok=True)
    before = len(ran_on(project))
    first = project.start("accept", "--configfile", "accept.yaml")
    until(lambda: LOST in project.cluster.ask("squeue", "-h", "-t", "RUNNING", "-o", "%N").split(), 300)
    project.cluster.take_down(LOST)
    said, _ = first.communicate(timeout=600)
    assert first.returncode == 1, said
    assert re.search(r"node 0: Slurm says that it is down.*for it given up", said), said
    assert accept.main(result) == (1 if findings(project) else 2)
    text = capsys.readouterr().out
    assert "missing (node 0" in text and "call snakemake accept again" in text
    kept = {path: path.read_bytes() for path in (project.path / acceptance.FOLDER).rglob("run?.json")}
    assert not any("node0" in str(path) for path in kept), "Slurm may start the node jobs in any order"

    without = project.run("accept", "--configfile", "accept.yaml")
    assert "node 0 is left out, because Slurm says that it is down" in without
    project.cluster.bring_back(LOST)
    until(lambda: "idle" in project.cluster.ask("sinfo", "-h", "-N", "-n", LOST, "-o", "%T"))
    output = project.run("accept", "--configfile", "accept.yaml")
    assert all(path.read_bytes() == content for path, content in kept.items()), "only what is missing is measured"
    assert accept.main(result) in ((1,) if findings(project) else (0, 2)), "nodes that share two cores differ much"
    assert "missing" not in capsys.readouterr().out
    assert json.loads(result.read_text())["summary"] in output, "the last message has the verdict"
    assert len(ran_on(project)) - before == len(PLACES)
    where_and_what(project)
    nothing_names_a_node(project)
    it_is_away_again(project, capsys)


def it_is_away_again(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of a node that is away are old: they do not make the fleet fit."""
    project.cluster.take_down(LOST)
    until(lambda: "down" in project.cluster.ask("sinfo", "-h", "-N", "-n", LOST, "-o", "%T"), 120)
    project.run("accept", "--configfile", "accept.yaml")
    assert accept.main(project.path / acceptance.RESULT) == (1 if findings(project) else 2)
    assert "node 0 is away, because Slurm says that it is down" in capsys.readouterr().out
    project.cluster.bring_back(LOST)
    until(lambda: "idle" in project.cluster.ask("sinfo", "-h", "-N", "-n", LOST, "-o", "%T"))


def where_and_what(project: Project) -> None:
    """Check the names of the nodes, the jobs on them, and the records."""
    names = json.loads((project.path / acceptance.LOCAL).read_text())["nodes"]
    assert names == {str(number): f"try{number + 1}" for number in range(2)}
    nodes = ["try1", "try2", "try[1-2]"]
    assert sorted(ran_on(project)[-len(PLACES) :]) == sorted(nodes)
    for place in PLACES:
        visit = json.loads((project.path / acceptance.VISIT.format(place=place, repeat=1)).read_text())
        assert sorted(visit["nodes"]) == [int(node) for node in re.findall(r"\d", place)]
        for path in visit["records"]:
            record = json.loads((project.path / path).read_text())
            assert record["status"] == "ok", record["reason"]
            records.RunRecord.model_validate(record)


def nothing_names_a_node(project: Project) -> None:
    """Check every result and log, except the file of names, and what a packed archive holds."""
    project.run("pack", "--configfile", "accept.yaml")
    name, local = re.compile(rb"\btry[1-5]\b"), project.path / acceptance.LOCAL
    for path in [path for folder in ("results", "logs") for path in (project.path / folder).rglob("*")]:
        if path.is_file() and path != local:
            assert not name.search(path.read_bytes()), path
    with zipfile.ZipFile(project.path / "results/archive.zip") as archive:
        assert acceptance.RESULT in archive.namelist()
        for held in archive.namelist():
            assert not name.search(archive.read(held)), held
