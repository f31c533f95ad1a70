"""Snakemake imports logs of others once, imports them again if a log changes, and the page marks their results."""

from __future__ import annotations

import json
from collections.abc import Callable

from .conftest import Clone, job_counts

STATE = {"train_batch_size": 8, "log_history": [{"step": 256, "train_samples_per_second": 11.43}]}


def test_logs_are_imported_once_and_again_when_one_changes(clone: Callable[[str], Clone]) -> None:
    made = clone("imports: {others: {logs: logs of others}}")
    state = made.path / "logs of others" / "a {b}" / "trainer_state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps(STATE))
    assert job_counts(made.made("imports", "results/report.html").stdout) == {"imported": 1, "imports": 1, "report": 1}
    (run,) = json.loads((made.path / "results/others/imported.json").read_text())["files"]
    assert (run["status"], run["value"], run["file"]) == ("ok", 11.43, "a {b}/trainer_state.json")
    page = (made.path / "results/report.html").read_text()
    assert "others (imported)" in page and "11.43" in page

    (state.parent / "foreign.log").write_text("nothing that is known\n")
    assert job_counts(made.made("imports").stdout) == {"imported": 1, "imports": 1}
    files = json.loads((made.path / "results/others/imported.json").read_text())["files"]
    assert [one["status"] for one in files] == ["foreign", "ok"]

    absent = made.snakemake("imports", "--config", "imports={gone: {logs: nowhere}}")
    assert absent.returncode and "imports.gone.logs: nowhere is no folder" in absent.stdout
