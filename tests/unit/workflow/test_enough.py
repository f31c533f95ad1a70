"""runs.enough: six of seven repeats are a result if the seventh failed, as in DLPerf's row of 2n8g."""

from pathlib import Path
from typing import Any

import pytest

from report_fixture import record, write_record
from throughline.console.console import NO_RECORD
from throughline.report.analysis import summary
from throughline.report.analysis.cells import groups
from throughline.report.analysis.summary import Terms
from throughline.report.render import cell_columns
from throughline.study import runs
from throughline.study.config import Config, load
from throughline.study.presets import WORKFLOW
from throughline.study.targets import Targets
from throughline.workflow import call

REPEATS = (1844.1, 1841.41, 1835.11, 1854.88, 1847.2, 1848.74)
"""DLPerf's repeats of MXNet on 2n8g. Its median of an even count is 1845.65."""
SEVENTH = "results/b/bz32_fp32/torch/2n8g/run7.json"
STOPPED = "outcome: stopped from outside; no record\n"


def values(**runs_keys: object) -> dict[str, Any]:
    block = {"sequence_length": 128, "topologies": ["2n8g"], "batch": {"fp32": [32]}, "hosts": "simulated"}
    return {"runs": {"repeats": 7, **runs_keys}, "benchmarks": {"b": block}}


def asked(**runs_keys: object) -> Config:
    return load([], values(**runs_keys))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The six repeats as records of the present configuration, and the log of the seventh."""
    monkeypatch.chdir(tmp_path)
    for spec, speed in zip(runs.expand(asked()), REPEATS, strict=False):
        write_record(Path("results"), record(spec.values(), speed))
    log(f"{NO_RECORD}\n{SEVENTH}: rank 3: killed by signal 9\n  next: read dmesg\n")


def log(text: str, repeat: int = 7) -> None:
    path = Path(SEVENTH).with_name(f"run{repeat}.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# again: snakemake\n{text}")


def left_out(config: Config) -> dict[str, str]:
    return call.given_up(config, runs.expand(config))


def test_a_call_says_which_repeat_is_left_out() -> None:
    said: list[str] = []
    call.read([], values(enough=6), WORKFLOW, lambda _: [], say=said.append)
    assert any(line.endswith(f"to try it again: snakemake {SEVENTH}") for line in said)


def test_a_failed_repeat_is_left_out_and_the_cell_says_why() -> None:
    config = asked(enough=6)
    failures = left_out(config)
    assert failures == {SEVENTH: "rank 3: killed by signal 9"}
    targets = Targets(config, runs.expand(config), {}, {}, {}, failures)
    wildcards = {"benchmark": "b", "batch": "32", "precision": "fp32"}
    waited = targets.records(**wildcards)
    assert len(waited) == 6 and SEVENTH not in [*waited, *targets.results()]
    assert targets.run(**wildcards, framework="torch", topology="2n8g", repeat="7"), "a target may name it"
    terms = Terms.model_validate(targets.made()["b"]["terms"])
    found = summary.summarize(list(map(Path, waited)), repeats=7, terms=terms)
    cell = found.frameworks["torch"]["2n8g"]
    assert (cell.n_ok, cell.n, round(cell.median_speed or 0, 2)) == (6, 7, 1845.65)
    why = "repeat 7 failed: rank 3: killed by signal 9"
    assert cell.reasons == [why] and "over 6 of 7 repeats: 1 gave no valid figure" in cell.warnings[0]
    entry = cell_columns.VALID.entry(groups([found])[0].cells[0])
    assert (entry.text, entry.reason) == ("6/7", f"1 missing, {why}")


@pytest.mark.parametrize(
    ("keys", "text"),
    [({}, None), ({"enough": 6}, STOPPED), ({"enough": 6}, f"{NO_RECORD}\nfirst\n{STOPPED}"), ({"enough": 7}, None),
     ({"enough": 6, "seed": 1}, None)],
    ids=["without", "stopped", "stopped at last", "too few", "of another configuration"],
)  # fmt: skip
def test_a_repeat_that_can_still_be_made_is_waited_for(keys: dict[str, int], text: str | None) -> None:
    if text:
        log(text)
    assert left_out(asked(**keys)) == {}


def test_all_others_have_to_be_tried() -> None:
    Path(SEVENTH).with_name("run6.json").unlink()
    assert left_out(asked(enough=5)) == {}
    log(f"{NO_RECORD}\n", repeat=6)
    assert [*left_out(asked(enough=5)).values()] == ["no reason is in its log", "rank 3: killed by signal 9"]
