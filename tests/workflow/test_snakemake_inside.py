"""What the workflow takes from Snakemake's inside is there, in the version that the workflow is installed with."""

import importlib.metadata
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError

from clones import ROOT
from process_helpers import until
from throughline.workflow.inside import TRIED_WITH, take

ASKS = """
import json, sys
from throughline.workflow.inside import Inside
inside = Inside(workflow)
seen = {
    "root": str(inside.root), "module": inside.is_module, "configuration": [list(map(str, inside.configuration[0])),
    dict(inside.configuration[1])], "snakefile": inside.snakefile, "deployment": sorted(inside.deployment),
    "submits": inside.submits, "submitted": inside.is_submitted, "partition": inside.resource("run", "slurm_partition"),
    "console": bool(inside.own_output), "quiet": inside.is_quiet, "dry": inside.is_dry_run, "main": inside.is_main,
    "cores": inside.cores,
}

rule run:
    output: "made"
    log: "made.log"
    shell: "touch {output}"

seen["unmade"] = inside.unmade()

onstart:
    jobs = inside.jobs()
    seen["jobs"] = [str(job.output[0]) for job in jobs] + [str(job.log[0]) for job in jobs]
    seen["targets"] = [sorted(map(str, inside.target_files)), sorted(inside.targets)]

onsuccess:
    seen["left"] = [str(job.output[0]) for job in inside.jobs(finished=False)]
    open("seen.json", "w").write(json.dumps(seen))
"""
OUTER = """
module inner:
    snakefile: "workflow/inner.smk"
    config: {"key": "1"}

use rule * from inner as inner_*

onstart: inner.onstart()
onsuccess: inner.onsuccess()
"""


BEHIND = """
from throughline.workflow.inside import look_behind_ancient_files
look_behind_ancient_files()

rule data:
    input: "source"
    output: "data"
    shell: "cp {input} {output}"

rule record:
    input: ancient("data")
    output: "record_{n}"
    shell: "cp {input} {output}"

rule summary:
    input: "record_1", "record_2"
    output: "made"
    shell: "cat {input} > {output}"
"""


INTERRUPTED = """
from throughline.workflow.inside import Inside
inside = Inside(workflow)

rule made:
    output: "made"
    shell: "trap '' INT; touch begun; sleep 2; echo done > {output}"

onerror: inside.count_finished()
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Let Snakemake make the file `made` in a folder, without anything of this process's environment."""
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "made", *words]
    variables = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    output = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT, text=True)


def said(folder: Path, *words: str) -> str:
    with start(folder, *words) as process:
        printed, _ = process.communicate()
    assert process.returncode == 0, printed
    return printed


def asked(folder: Path, *words: str) -> dict[str, object]:
    said(folder, *words)
    return dict(json.loads((folder / "seen.json").read_text()))


def test_everything_is_there_and_says_what_the_user_asked_for(tmp_path: Path) -> None:
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/inner.smk").write_text(ASKS)
    (tmp_path / "one.yaml").write_text("key: 1\n")
    words = ["--configfile", "one.yaml", "--config", "other=2", "--set-resources"]
    default = ["--default-resources", "slurm_partition=all"]
    inner = ["--snakefile", "workflow/inner.smk"]
    seen = asked(tmp_path, *inner, *words, "run:slurm_partition=gpu", *default)
    rest = {
        "deployment": [], "submits": False, "submitted": False, "dry": False,
        "partition": ["gpu", "all"], "console": True, "quiet": False,
        "jobs": ["made", "made.log"], "targets": [["made"], ["made"]], "left": [], "main": True, "cores": 1,
    }  # fmt: skip
    root, files = str(tmp_path / "workflow"), [str(tmp_path / "one.yaml")]
    assert seen == rest | {
        "root": root, "module": False, "snakefile": "workflow/inner.smk", "configuration": [files, {"other": 2}],
        "unmade": [[], ["run"]],
    }  # fmt: skip
    (tmp_path / "made").unlink()
    (tmp_path / "Snakefile").write_text(OUTER)
    seen = asked(tmp_path, *words, "inner_run:slurm_partition=gpu", *default)
    assert seen == rest | {
        "root": root, "module": True, "console": False, "snakefile": None, "configuration": [[], {"key": "1"}],
        "unmade": [[], ["inner_run"]],
    }  # fmt: skip


def test_a_job_that_ends_well_after_an_interruption_counts_as_finished(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(INTERRUPTED)
    with start(tmp_path) as process:
        until(lambda: (tmp_path / "begun").exists())
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode and (tmp_path / "made").read_text() == "done\n"
    assert "Nothing to be done" in said(tmp_path)


def test_this_is_the_version_that_the_workflow_was_tried_with() -> None:
    pinned = re.search(r"^snakemake==(\S+)", (ROOT / "envs/main.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert {TRIED_WITH} == {pinned[1], importlib.metadata.version("snakemake")}, (
        "run the tests in tests/workflow with the other version, then name it in src/throughline/workflow/inside.py"
    )


def test_what_is_gone_is_named_with_the_version() -> None:
    workflow = SimpleNamespace(dag=SimpleNamespace(needrun_jobs=list))
    assert take(workflow, "dag.needrun_jobs") is list
    with pytest.raises(
        WorkflowError, match=rf"has no SimpleNamespace.dag.targetfiles .*\n.*tried with .* {TRIED_WITH}"
    ):
        take(workflow, "dag.targetfiles")


def test_data_that_are_made_again_hide_nothing_behind_them(tmp_path: Path) -> None:
    """Data are made again: a record that is missing is made, one that was changed is noticed, another is left alone."""

    def made(record_1: str, record_2: str) -> None:
        said(tmp_path)
        assert (tmp_path / "made").read_text() == record_1 + record_2

    (tmp_path / "Snakefile").write_text(BEHIND)
    (tmp_path / "source").write_text("1")
    made("1", "1")
    (tmp_path / "source").write_text("2")
    (tmp_path / "record_2").unlink()
    (tmp_path / "made").unlink()
    made("1", "2")
    (tmp_path / "source").write_text("3")
    (tmp_path / "record_1").write_text("changed")
    made("changed", "2")
