"""Locks: one run at a time on the devices of a machine, one writer of a record."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from throughline.files import UserError
from throughline.launch import lock
from throughline.processes import wait_until
from unit.launch.conftest import Program


def test_the_lock_lets_one_in_and_names_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))
    texts: list[str] = []
    stop = threading.Event()
    hold = "import sys; from throughline.launch import lock\nwith lock.device('results/a.json', print):\n"
    hold += "  print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert other.stdout is not None and other.stdout.readline() == "held\n"

    def say(text: str) -> None:
        texts.append(text)
        stop.set()

    with pytest.raises(InterruptedError), lock.device("results/b.json", say, stop.is_set):
        pass
    assert f"process {other.pid} measures results/a.json since " in texts[0]
    other.kill()  # the lock ends when its holder ends, for whatever reason
    other.communicate()
    with lock.device("results/b.json", texts.append):
        assert len(texts) == 1


def test_a_record_has_one_writer(tmp_path: Path, program: Program) -> None:
    """The claim of a job in the queue holds. The claim of a job that is over does not, nor does that of the same job
    before a restart."""
    record = tmp_path / "run1.json"
    program("squeue", 'case "$3" in 7) echo RUNNING;; *) echo "Invalid job id specified" >&2; exit 1;; esac')
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


def test_two_jobs_that_find_a_stale_claim_together_do_not_both_write(tmp_path: Path, program: Program) -> None:
    """Both jobs have asked Slurm about the claim before one of them goes on. It is the first claim that they look at:
    they take claims in the order of their names."""
    (tmp_path / ".run1.1.claim").write_text("2026-11-20T12:00:00Z")
    program(
        "squeue",
        f"""case "$3" in
          1) touch {tmp_path}/asked.$$; until [ $(ls {tmp_path}/asked.* | wc -l) = 2 ]; do sleep 0.05; done
             echo "Invalid job id specified" >&2; exit 1;;
          *) echo RUNNING;; esac""",
    )
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
