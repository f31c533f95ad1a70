"""Figures within a record follow from one another, or are bounded by one another."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline.archive import raw, samples
from throughline.records import RunRecord, read_run
from unit.archive.test_archive import RUN, Files, unpacked

__all__ = ["unpacked"]
DEMO = Path(__file__).parents[3] / "docs/demo/runs.jsonl"
RECORDS = [json.loads(line) for line in DEMO.read_text().splitlines()]


def one(topology: str, **asked: Any) -> Any:
    """Return a copy of a record of the demo."""
    found = next(
        record
        for record in RECORDS
        if record["spec"]["topology"] == topology and all(record["spec"][key] == value for key, value in asked.items())
    )
    return json.loads(json.dumps(found))


def found(record: Any) -> list[str]:
    return [str(one) for one in raw.record("r", RunRecord.model_validate(record))]


def test_honest_records_hold() -> None:
    assert len(RECORDS) == 140
    assert not [told for record in RECORDS for told in found(record)]


def longer_step(record: Any) -> None:
    record["step_seconds"][1] *= 1.05


def shorter_steps(record: Any) -> None:
    record["step_seconds"] = [seconds * 0.95 for seconds in record["step_seconds"]]


def larger_than_the_device(record: Any) -> None:
    record["memory"]["device_total_bytes"] = min(rank["peak_memory_bytes"] for rank in record["ranks"]) - 1


def skipped(record: Any) -> None:
    record["scaler_skipped_steps"] += 1


def fewer_warmup(record: Any) -> None:
    record["warmup_steps"] -= 1


def many_warmup(record: Any) -> None:
    record["warmup_steps"] = max(record["spec"]["steps"]["warmup"], 4) + 1


def exact_warmup(record: Any) -> None:
    record["spec"]["steps"] |= {"max_total_seconds": None}
    record["warnings"] = []
    record["warmup_steps"] = record["spec"]["steps"]["warmup"] + 1


def other_warning(record: Any) -> None:
    steps = record["spec"]["steps"]
    told = f"{record['warmup_steps']} of {steps['warmup']} warm-up and {record['steps_timed'] + 1} of 99 timed steps"
    record["warnings"] = [f"max_total_seconds 3: {told}"]


def latency(record: Any) -> None:
    for figure in record["figures"]:
        if figure["name"] == "latency" and figure["value"]:
            figure["value"] *= 1.05


@pytest.mark.parametrize("topology", ["1n1g", "1n2g"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (shorter_steps, "step_seconds: together they take"),
        (larger_than_the_device, ".peak_memory_bytes: it states"),
        (skipped, "scaler_skipped_steps: it states 1, and 0 is the most"),
        (fewer_warmup, "warmup_steps: it states"),
        (many_warmup, "warmup_steps: it states"),
        (exact_warmup, "warmup_steps: it states"),
        (other_warning, "warnings[2]: it states"),
        (latency, "figures.latency (median): it states"),
    ],
)
def test_what_does_not_fit_within_a_record(change: Callable[[Any], None], told: str, topology: str) -> None:
    record = one(topology, precision="fp32", framework="torch")
    assert not found(record)
    record["warnings"] = [text for text in record["warnings"] if not text.startswith("max_total_seconds")]
    change(record)
    assert any(told in line for line in found(record)), found(record)


def test_a_longer_step_of_one_rank() -> None:
    """With several ranks, nobody knows which rank took how long: the sum is bounded only."""
    record = one("1n1g", precision="fp32", framework="torch")
    longer_step(record)
    assert any("step_seconds: together they take" in line for line in found(record))


def test_the_scaler_of_fp16_may_skip_few_steps() -> None:
    record = one("1n1g", precision="fp32")
    record["spec"]["precision"] = "fp16"
    record["scaler_skipped_steps"] = 1
    assert [line for line in found(record) if "scaler" in line]
    record["steps_timed"], record["step_seconds"] = 100, [record["window_s"] / 100] * 100
    record["samples_per_s"] *= 100 / len(one("1n1g", precision="fp32")["step_seconds"])
    assert not [line for line in found(record) if "scaler" in line or "step_seconds" in line]


@pytest.mark.parametrize("end", ["mean", "min", "max"])
def test_the_use_by_others_follows_from_the_samples(end: str, unpacked: Files, tmp_path: Path) -> None:
    path = tmp_path / f"{RUN}.json"
    path.parent.mkdir(parents=True)
    table = Path(samples.table_name(str(path)))
    table.write_bytes(unpacked[f"{RUN}.telemetry.csv"])
    path.write_bytes(unpacked[f"{RUN}.json"])
    assert not list(samples.telemetry("r.json", read_run(path), table))
    record = json.loads(path.read_text())
    record["telemetry"][0]["machine"]["cpu_others_share"][end] *= 1.05
    path.write_text(json.dumps(record))
    (told,) = map(str, samples.telemetry("r.json", read_run(path), table))
    assert told.startswith(f"r.json: telemetry[0].machine.cpu_others_share.{end}: it states")
