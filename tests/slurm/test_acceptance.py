"""An acceptance on a real Slurm cluster: every visit takes place on the nodes that it names, and no file names them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from slurm.conftest import Project
from throughline import records
from throughline.study import acceptance

ASKED = """accept:
  {repeats: 1, nodes: 3, pairs: 1, threads: 1, step_s: 0.5, at_least_s: 0.05, device: cpu,
   sizes: {matmul: [64], memory: [65536], all_reduce: [1024, 65536]}}
"""


def test_visits_take_place_on_the_nodes_that_they_name(project: Project) -> None:
    (project.path / "accept.yaml").write_text(ASKED)
    project.run("accept", "--configfile", "accept.yaml")
    names = json.loads((project.path / acceptance.LOCAL).read_text())["nodes"]
    assert names == {"0": "try1", "1": "try2", "2": "try3"}
    places = {"node0": "try1", "node1": "try2", "node2": "try3", "pair_1_2": "try[2-3]", "all": "try[1-3]"}
    completed = (project.cluster.folder / "log" / "completed.txt").read_text().splitlines()
    ran_on = [found[1] for line in completed[-len(places) :] if (found := re.search(r"NodeList=(\S+)", line))]
    assert sorted(ran_on) == sorted(places.values())
    for place in places:
        visit = json.loads((project.path / acceptance.VISIT.format(place=place, repeat=1)).read_text())
        for path in visit["records"]:
            record = json.loads((project.path / path).read_text())
            assert record["status"] == "ok", record["reason"]
            records.RunRecord.model_validate(record)
    for path in filter(Path.is_file, (project.path / acceptance.FOLDER).rglob("*")):
        assert not re.search(rb"\btry[1-5]\b", path.read_bytes()), path
