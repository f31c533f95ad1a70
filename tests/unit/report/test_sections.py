"""What the page and the tables show besides throughput: the figures, and the reason for each missing figure."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report_fixture import CPU, jitter, observed, record, spec, write_record, write_series
from throughline.report.analysis import cells, notes, summary, titles
from throughline.report.analysis.summary import Terms
from throughline.report.render import head, page
from throughline.report.render.page import Results
from throughline.report.render.table_files import printed
from throughline.report.render.tables import TEXT, Table
from throughline.report.topic import Scope
from throughline.report.topics import TOPICS, hardware, implausible, write_tables
from throughline.study.result_sections import Goals, Price

GOALS = Goals.model_validate({"efficiency": {"from_nodes": 20}, "utilization": {}})
TERMS = Terms(goals=GOALS, prices={"V100": Price(per_hour=3.6, currency="EUR")}, total_samples=1_000_000)


def groups(root: Path, complete: bool, **changes: Any) -> list[cells.Group]:
    """Make runs on one and two devices at two batch sizes. The larger batch does not fit on two devices."""
    fits = write_series(root, {"1n1g": jitter(100.0), "1n2g": jitter(190.0)}, complete=complete, **changes)
    tight = write_series(root, {"1n1g": jitter(120.0)}, complete=complete, batch=96, **changes)
    oom = record(spec(batch=96, topology="1n2g"), None, status="oom", reason="too large")
    tight.append(write_record(root, {**oom, "device": changes.get("device_found", oom["device"])}))
    return cells.groups([summary.summarize(paths, repeats=5, terms=TERMS) for paths in (fits, tight)])


def shown(found: list[cells.Group], name: str) -> Table:
    table = next(topic for topic in TOPICS if topic.name == name).table(Scope(found))
    assert table is not None
    return table


def condensed(found: list[cells.Group], name: str) -> Table:
    """Return a table as Markdown shows it, without columns that have no figure."""
    table = shown(found, name).in_form(TEXT)
    assert table is not None
    return table


def row(table: Table, topology: str = "1n1g") -> dict[str, str]:
    """Return the figures of a row, by the keys of their columns."""
    line = next(line for line in table.lines if line.cell and str(line.cell.topology) == topology)
    return {column.key: entry.text for column, entry in zip(table.columns, line.entries, strict=True)}


def test_memory_used_of_total_with_the_row_that_did_not_fit(tmp_path: Path) -> None:
    table = condensed(groups(tmp_path, True), "memory")
    assert row(table) == {
        "peak_memory_bytes": "8,583", "needed_bytes": "7,982", "reserved_bytes": "8,583",
        "device_used_bytes": "9,012", "device_total_bytes": "16,160", "device_used_share": "56 %",
    }  # fmt: skip
    last = table.lines[-1].cell
    assert last and (last.status, last.label) == ("oom", "OOM")
    assert cells.STATUS_MEANINGS["oom"] == "out of memory: the configuration does not fit this device"


def test_a_predicted_memory_stands_beside_the_peaks(tmp_path: Path) -> None:
    (group, _), memory = groups(tmp_path, True), {"predicted_bytes": 8000 << 20}
    series = group.summary.frameworks["torch"]
    held = series["1n1g"].memory
    assert held
    series = series | {"1n1g": series["1n1g"].model_copy(update={"memory": held.model_copy(update=memory)})}
    found = group.summary.model_copy(update={"frameworks": {"torch": series}})
    table = condensed(cells.groups([found]), "memory")
    assert row(table)["predicted_bytes"] == "8,000" and row(table, "1n2g")["predicted_bytes"] == "n/a"


def test_use_of_the_hardware(tmp_path: Path) -> None:
    table = shown(groups(tmp_path, True), "utilization")
    assert {"gpu_busy_share": "93 %", "devices_power_w_mean": "271", "machine_cpu_share_mean": "21.0 %",
            "processes_cpu_cores_mean": "2.00", "throttle_reasons": "power",
            "machine_network_sent_bytes_per_s_mean": "910.0"}.items() <= row(table, "1n2g").items()  # fmt: skip
    notes = " ".join(condensed(groups(tmp_path, True), "utilization").notes)
    assert "n/a: SM active. Reason: this card has no such counters (GPM needs Hopper)" in notes
    power = next(e for c, e in zip(table.columns, table.lines[0].entries, strict=True) if c.heading == "power")
    assert power.reason == "266 to 276"


def test_work_with_its_conventions(tmp_path: Path) -> None:
    table = condensed(groups(tmp_path, True), "flops")
    assert {"flops_per_sample": "69.9 G", "datasheet_flops_per_s": "15.7 T", "mfu": "44.5 %", "matmul_share": "49.6 %",
            "real_tokens_per_s": "11,136"}.items() <= row(table).items()  # fmt: skip
    assert {"attention", "vocabulary head", "peak", "recomputation", "positions"} <= dict(table.facts).keys()


def test_a_head_on_all_positions_counts_in_the_share_of_matmul_alone(tmp_path: Path) -> None:
    """The device does that work, which is no part of the model's FLOPs: FLOP/s and MFU stay as they are."""
    head = {"vocabulary_head": "all positions, sharing the word embeddings", "vocabulary_rows": 30528}
    masked, every = (
        groups(tmp_path / name, complete=True, beside={"settings": settings})[0].cells[0].record
        for name, settings in (("masked", {"vocabulary_head": "masked positions"}), ("every", head))
    )
    assert masked and every and masked.work and every.work and every.work.matmul_share
    scores = 3 * 108 * 2 * 768 * (768 + 30528)
    times = 1 + scores / (masked.work.flops_per_sample or 0.0)
    assert every.work.computed_matmul_share == pytest.approx(times * every.work.matmul_share) and times > 1.2
    same = {"computed_matmul_share", "convention"}
    assert every.work.model_dump(exclude=same) == masked.work.model_dump(exclude=same)
    assert masked.work.computed_matmul_share is None
    assert "scores of positions that are not masked" in every.work.convention["computed_matmul_share"]


def test_more_than_the_matrix_product_is_no_share_of_it(tmp_path: Path) -> None:
    run = observed(record(spec(), 220.0))
    run["work"] |= {"matmul_share": 5.638, "matmul_flops_per_s": run["work"]["flops_per_s"] / 5.638}
    scope = Scope(cells.groups([summary.summarize([write_record(tmp_path, run)], repeats=1)]))
    table = hardware.work(scope)
    share = table.lines[0].entries[[column.key for column in table.columns].index("matmul_share")]
    assert share.text in ("", "n/a") and "more FLOP/s than the matrix product" in (share.reason or "")


@pytest.mark.parametrize(
    ("slower", "precision", "cause"),
    [(5.0, "fp32", "mxnet-horovod multiplies large matrices slowly here; torch reaches 14.1 TFLOP/s"),
     (1.0, "fp32", "slower than the training, and the records do not say why"),
     (1.0, "fp16", "this device has no fp16 units")],
)  # fmt: skip
def test_a_share_of_matmul_above_one_is_doubtful(tmp_path: Path, slower: float, precision: str, cause: str) -> None:
    runs = write_series(tmp_path, {"1n1g": [100.0]}, complete=True, device_found=CPU, precision=precision)
    run = observed(record(spec(framework="mxnet-horovod", precision=precision), 220.0 / slower, device=CPU))
    run["work"]["matmul_flops_per_s"] /= slower
    run["work"]["matmul_share"] *= slower
    scope = Scope(cells.groups([summary.summarize([*runs, write_record(tmp_path, run)], repeats=1)]))
    ((rule, row, text),) = printed(implausible.table(scope))[1]
    assert (rule, row) == ("above the measured matrix product", f"bert bz32_{precision}, mxnet-horovod, 1 device")
    assert "1.091 times the" in text and cause in text and "share" not in text and "clock" not in text
    (note,) = implausible.notes(scope, scope.groups[0])
    assert (note.where, "above the measured matrix product" in note.text) == ("mxnet-horovod, 1 device", True)


@pytest.mark.parametrize(
    ("device", "compiled", "says"), [(None, False, True), (None, True, False), (CPU, False, False)]
)
def test_a_step_that_was_not_compiled_on_gpus_is_said(
    tmp_path: Path, device: dict[str, Any] | None, compiled: bool, says: bool
) -> None:
    changes = {"device_found": device} if device else {}
    paths = write_series(tmp_path, {"1n1g": [100.0]}, complete=True, options={"compile": compiled}, **changes)
    (group,) = cells.groups([summary.summarize(paths, repeats=1)])
    found = notes.not_compiled(group)
    assert [(note.where, "options.compile is false" in note.text) for note in found] == [("torch", True)] * says


@pytest.mark.parametrize(
    ("words", "title", "said"),
    [
        ("compiled: the device is a GPU", "W/ compile (auto) &", None),
        ("not compiled: the job has 40 steps", "W/O compile (auto) &", "not compiled: the job has 40 steps"),
    ],
)
def test_what_compile_auto_did_is_in_the_title_and_an_eager_step_is_said(
    tmp_path: Path, words: str, title: str, said: str | None
) -> None:
    run = record(spec(options={"compile": "auto"}), 100.0)
    run["settings"] = {"compiling": words}
    groups = cells.groups([summary.summarize([write_record(tmp_path, run)], repeats=1)])
    assert f"fp32, {title}" in titles.title(groups[0])
    texts = [note.text for note in notes.not_compiled(groups[0])]
    assert [said in text for text in texts] == [True] if said else not texts


def test_a_title_names_the_frameworks_that_compile_auto_left_eager(tmp_path: Path) -> None:
    said = {"torch": "compiled: the device is a GPU", "mxnet-horovod": "not compiled: it cannot"}
    runs = []
    for name, words in said.items():
        runs.append(record(spec(framework=name, options={"compile": "auto"}), 100.0))
        runs[-1]["settings"] = {"compiling": words}
    found = summary.summarize([write_record(tmp_path, run) for run in runs], repeats=1)
    (group,) = cells.groups([found])
    assert "W/ compile (auto), but W/O compile in mxnet-horovod &" in titles.title(group)
    (unknown,) = cells.groups([found.model_copy(update={"settings": None})])
    assert "fp32, compile: auto &" in titles.title(unknown)


def test_a_title_names_the_frameworks_that_multiply_in_fp32(tmp_path: Path) -> None:
    runs = [record(spec(framework=name, precision="fp16"), 100.0) for name in ("torch", "jax")]
    runs[0]["settings"] = {"emulated_products": "of float16 numbers in float32"}
    found = summary.summarize([write_record(tmp_path, run) for run in runs], repeats=1)
    (group,) = cells.groups([found])
    assert titles.title(group).endswith("& W/ products in fp32, rounded to fp16, in torch")


def test_cost_with_the_best_value(tmp_path: Path) -> None:
    table = shown(groups(tmp_path, True), "cost")
    assert row(table) == {
        "price_per_device_hour": "3.6 EUR", "price_per_million_samples": "10.00 EUR",
        "samples_per_currency_unit": "100,000", "task_hours": "2.778", "task_price": "10.00 EUR",
        "energy_j_per_sample": "2.710",
    }  # fmt: skip
    best = [line for line in table.lines if any(entry.kind == "best" for entry in line.entries)]
    assert [(line.cell.group.batch, str(line.cell.topology)) for line in best if line.cell] == [(96, "1n1g")]
    assert "best value, samples for 1 EUR: torch 1n1g, fp32, batch 96: 120,000" in table.notes


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("memory", "knows no such figure"),
        ("utilization", "telemetry was switched off"),
        ("flops", "knows no such figure"),
    ],
)
def test_a_record_without_figures_says_why(tmp_path: Path, name: str, reason: str) -> None:
    table = condensed(groups(tmp_path, False), name)
    assert any(reason in note for note in table.notes)
    assert all(entry.value is not None for line in table.lines for entry in line.entries)


def test_the_page_shows_all_of_it(tmp_path: Path) -> None:
    found = Results()
    for group in groups(tmp_path / "results", True):
        found.present[tmp_path / "results/bert" / f"{group.name}.json"] = group.summary
    html = page.render(found, [], None, tmp_path / "results/report.html")
    for text in ("Memory", "Utilization", "FLOPs and MFU", "Cost", "Comparisons", "1n2g over 1n1g", "44.5 %",
                 "no topology has 20 nodes and more", "(no valid repeat)", "without an A/A run of its",
                 "each of the 128 positions attends to all", "10.00 EUR"):  # fmt: skip
        assert text in html


def test_a_cpu_has_no_mfu_and_says_why(tmp_path: Path) -> None:
    found = groups(tmp_path, True, device_found=CPU)
    table = condensed(found, "flops")
    assert "mfu" not in [column.key for column in table.columns]
    assert any("MFU" in note and "a CPU's peak depends on its clock" in note for note in table.notes)
    assert any("no price is known for AMD EPYC" in note for note in condensed(found, "cost").notes)
    value = observed(record(spec(), 100.0, device={**CPU, "name": "A processor that nobody sells"}))
    value["telemetry"][0] |= {"devices": [], "reasons": {"devices": "the run is on the processor"}}
    plain = cells.groups([summary.summarize([write_record(tmp_path / "plain", value)], repeats=1)])
    cost = condensed(plain, "cost")
    assert not cost.columns and any("energy" in note and "Reason" in note for note in cost.notes)


def test_files_hold_the_unrounded_figures(tmp_path: Path) -> None:
    write_tables(Scope(groups(tmp_path, True)), tmp_path / "tables")
    wanted = {
        "flops": ("mfu", 100 * 69.93e9 / 15.7e12),
        "cost": ("price_per_million_samples", 10.0),
        "utilization": ("devices_memory_used_bytes_mean", 9.45e9),
        "memory": ("needed_bytes", 8.37e9),
    }
    for name, (key, value) in wanted.items():
        with (tmp_path / f"tables/{name}.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert float(rows[0][key]) == pytest.approx(value, rel=1e-3)
        assert (rows[-1]["status"], rows[-1][key]) == ("oom", "")
    assert "| 96 | fp32 | torch | 1n2g | OOM |" in (tmp_path / "tables/cost.md").read_text()


def test_the_merged_configuration_is_shown(tmp_path: Path) -> None:
    run = {
        **record(spec(), 100.0),
        "configuration": {"runs": {"repeats": 5}, "benchmarks": {"bert": {"sequence_length": 128}}},
    }
    path = write_record(tmp_path, run)
    place = tmp_path / "bert/bz32_fp32.json"
    found = Results({place: summary.summarize([path], repeats=1)})
    html = page.render(found, [], None, tmp_path / "report.html")
    assert "the merged configuration of bert" in html
    assert "repeats: 5" in html and "sequence_length: 128" in html


def test_what_a_model_or_an_optimizer_does_not_have_is_not_shown(tmp_path: Path) -> None:
    found = summary.summarize(write_series(tmp_path, {"1n1g": [5.0]}), repeats=1)
    assert dict(head.settings(found))["dropout"] == "0.1"
    sgd = replace(found.optimizer, name="sgd", momentum=0.875)
    built = {"dropout": [], "parameters": 25_557_032}
    without = found.model_copy(update={"settings": {"torch": built}, "optimizer": sgd})
    shown = dict(head.settings(without))
    assert shown["model"].endswith(", 25,557,032 parameters")
    assert "dropout" not in shown and shown["optimizer"].endswith(", momentum 0.875")
