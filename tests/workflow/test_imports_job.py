"""Snakemake imports logs of others once, imports them again if a log changes, and the page marks their results."""

import json
from collections.abc import Callable

from clones import Clone, job_counts

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
    again = made.made("imports").stdout
    assert job_counts(again) == {"imported": 1, "imports": 1}
    assert "others: 1 of 2 files were not read: 1 foreign" in again and "kinds of logs that are known: DLPerf" in again
    assert "each file: results/others/imported/throughput.md" in again
    files = json.loads((made.path / "results/others/imported.json").read_text())["files"]
    assert [one["status"] for one in files] == ["foreign", "ok"]
