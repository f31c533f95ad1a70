"""Figures of a run follow from one another, or are bounded by one another: its record, samples, manifest and log."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline.archive import raw
from throughline.files import read_json
from throughline.records import RunRecord, read_run
from unit.archive.test_archive import DEMO, MANIFEST, RUN, Files, unpacked, written

__all__ = ["unpacked"]
RECORDS = [json.loads(line) for line in (DEMO / "runs.jsonl").read_text().splitlines()]
TABLE = f"{RUN}.telemetry.csv"


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
    assert len(RECORDS) == 122
    assert not [told for record in RECORDS for told in found(record)]


def exact_warmup(record: Any) -> None:
    record["spec"]["steps"] |= {"max_total_seconds": None}
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
        (
            lambda run: run.update(step_seconds=[step * 0.95 for step in run["step_seconds"]]),
            "step_seconds: together they take",
        ),
        (lambda run: run["memory"].update(device_total_bytes=1), ".peak_memory_bytes: it states"),
        (lambda run: run.update(scaler_skipped_steps=1), "scaler_skipped_steps: it states 1, and 0 is the most"),
        (lambda run: run.update(warmup_steps=run["warmup_steps"] - 1), "warmup_steps: it states"),
        (lambda run: run.update(warmup_steps=max(run["spec"]["steps"]["warmup"], 4) + 1), "warmup_steps: it states"),
        (exact_warmup, "warmup_steps: it states"),
        (other_warning, "warnings[2]: it states"),
        (latency, "figures.latency (median): it states"),
    ],
)
def test_what_does_not_fit_within_a_record(change: Callable[[Any], object], told: str, topology: str) -> None:
    record = one(topology, precision="fp32", framework="torch")
    assert not found(record)
    record["warnings"] = [text for text in record["warnings"] if not text.startswith("max_total_seconds")]
    change(record)
    assert any(told in line for line in found(record)), found(record)


def test_a_longer_step_of_one_rank() -> None:
    """With several ranks, nobody knows which rank took how long: the sum is bounded only."""
    record = one("1n1g", precision="fp32", framework="torch")
    record["step_seconds"][1] *= 1.05
    assert any("step_seconds: together they take" in line for line in found(record))


def test_the_scaler_of_fp16_may_skip_few_steps() -> None:
    record = one("1n1g", precision="fp32")
    record["spec"]["precision"] = "fp16"
    record["scaler_skipped_steps"] = 1
    assert [line for line in found(record) if "scaler" in line]
    record["steps_timed"], record["step_seconds"] = 100, [record["window_s"] / 100] * 100
    record["samples_per_s"] *= 100 / len(one("1n1g", precision="fp32")["step_seconds"])
    assert not [line for line in found(record) if "scaler" in line or "step_seconds" in line]


def quicker(record: Any) -> None:
    """Latency that the steps do not bear out. The kept records state no latency."""
    steps = sorted(record["step_seconds"])
    stated = {"name": "latency", "unit": "ms", "better": "less", "at": "95 %", "value": 500 * steps[-1]}
    record["figures"] = [*record["figures"], stated]


def checked(files: Files, folder: Path, change: Callable[[Any], object] = lambda record: None) -> list[str]:
    """Return what is wrong with a run of the kept archive, with another record. A digest is made by a rule: a word."""
    kept = {name: content for name, content in files.items() if name.startswith((RUN, str(MANIFEST)))}
    path = written(kept, folder) / f"{RUN}.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    return [str(one) for one in raw.check(folder, path, read_run(path), read_json, f"{RUN}.json")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda run: run.update(samples_per_s=run["samples_per_s"] * 1.01, window_s=run["window_s"] / 1.01),
            "window_s: it states",
        ),
        (quicker, "figures.latency (95 %): it states"),
        (
            lambda run: [rank.update(matmul_flops_per_s=1.0) for rank in run["ranks"]],
            "work.matmul_flops_per_s: it states",
        ),
        (
            lambda run: [rank.update(window_start_s=rank["window_end_s"]) for rank in run["ranks"]],
            "ranks[0]: its window does not end after its start",
        ),
    ],
)
def test_figures_that_do_not_fit(change: Callable[[Any], object], told: str, unpacked: Files, tmp_path: Path) -> None:
    lines = checked(unpacked, tmp_path, change)
    assert any(line.startswith(f"{RUN}.json: {told}") for line in lines), lines


MACHINE = "telemetry.0.machine"
DIGITS = {
    name: name
    for name in (
        "peak_memory_bytes", "memory.reserved_bytes", "work.flops_per_s", "work.real_tokens_per_s", "utilization.cpu",
        "data.rows", "telemetry.0.samples", f"{MACHINE}.memory_used_bytes.max", f"{MACHINE}.loopback_bytes_per_s.max",
        f"{MACHINE}.cpu_others_share.mean", f"{MACHINE}.cpu_others_share.min", f"{MACHINE}.cpu_others_share.max",
    )
} | {"ranks.1.node": "ranks.1.1", "environment.kernel": "environment.digest"}  # fmt: skip
"""Values of a record that are changed, and those that are then said to differ."""


@pytest.mark.parametrize(("changed", "told"), DIGITS.items())
def test_a_digit_in_a_record(changed: str, told: str, unpacked: Files, tmp_path: Path) -> None:
    def change(record: Any) -> None:
        *names, last = (int(name) if name.isdigit() else name for name in changed.split("."))
        for name in names:
            record = record[name]
        value = record[last]
        record[last] = f"{value}0" if isinstance(value, str) else type(value)(value * 1.01) + isinstance(value, int)

    lines = checked(unpacked, tmp_path, change)
    where = re.sub(r"\.(\d+)", r"[\1]", told)
    assert any(line.startswith(f"{RUN}.json: {where}: it states") for line in lines), lines


def test_data_that_were_made_again_since(unpacked: Files, tmp_path: Path) -> None:
    def more(record: Any) -> None:
        record["data"]["rows"] += 1

    manifest = {**json.loads(unpacked[str(MANIFEST)]), "content_digest": "made again since"}
    assert not checked(unpacked | {str(MANIFEST): json.dumps(manifest).encode()}, tmp_path, more)


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return what changes a table. It fails if the table lacks `old`."""

    def changed(table: bytes) -> bytes:
        assert old in table
        return table.replace(old, new, 1)

    return changed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (replaced(b"0,-1.7", b"0,early"), "early17775"),
        (replaced(b"1754652672", b"inf"), "not finite"),  # a mean that is not finite would be equal to everything
        (replaced(b"at_s", b"when"), "it has no column at_s"),
        (lambda table: table + b"0,1\n", "a row lacks one of node"),
        (lambda table: table + b"9" * 200_000, "not finite"),
        (lambda table: b"\xff\xfe", "codec can't decode"),
        (lambda table: b"", "No columns"),
    ],
)
def test_a_table_of_samples_that_is_none(
    change: Callable[[bytes], bytes], why: str, unpacked: Files, tmp_path: Path
) -> None:
    (told,) = checked(unpacked | {TABLE: change(unpacked[TABLE])}, tmp_path)
    assert told.startswith(f"{TABLE}: it cannot be derived: ") and why in told


def test_samples_that_are_too_many_or_gone(unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of another name leaves a figure that nobody can derive."""
    (told,) = checked(unpacked | {TABLE: replaced(b"machine_loopback", b"machine_other")(unpacked[TABLE])}, tmp_path)
    assert told == f"{RUN}.json: telemetry[0].machine.loopback_bytes_per_s: the archive lacks the samples behind it"
    monkeypatch.setattr(raw, "MOST_BYTES", 1 << 10)
    (told,) = checked(unpacked, tmp_path)
    assert told == f"{TABLE}: it cannot be derived: it holds more than 0 MiB, and is not read"
