"""From summaries to tables: what is printed, what stays empty, and hostile text that does nothing."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from report_fixture import asked, record, spec, write_record, write_series, write_study, write_summaries
from throughline import numbers
from throughline.files import UserError
from throughline.records import read_equivalence, read_summary
from throughline.report.analysis import cells, summary, titles
from throughline.report.render import markup, table_files
from throughline.report.topic import Scope
from throughline.report.topics import numerical_equivalence, throughput, write_tables

GOLDEN = Path(__file__).parent / "golden_records"
EXPECTED = asked(["4n8g"], repeats=7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    found = [read_summary(path) for path in write_summaries(root, write_study(root), remarks="A remark.")]
    write_tables(Scope(cells.groups(found, cells.read_asked(EXPECTED))), root / "bert/tables")
    return root / "bert/tables"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_table_in_every_form(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{suffix}"
        for name in ("throughput", "figures", "memory", "utilization", "flops", "cost")
        for suffix in ("csv", "md")
    } | {"beside.csv", "comparisons.csv", "throughput.tex"}


def test_markdown_as_dlperf_prints_it(folder: Path) -> None:
    text = (folder / "throughput.md").read_text(encoding="utf-8")
    assert "**Batch size = 32, fp32, W/O compile & W/O clip & W/O checkpointing**" in text
    assert "| framework | node_num | gpu_num | samples/s | speedup |" in text
    assert "| mxnet-horovod | 4 | 32 | 3671.45 | 24.46 |" in text
    assert "| mxnet-horovod | 2 | 16 | 1845.65 | 12.30 |" in text
    assert "| 6/7 |" in text
    assert "| mxnet-horovod | 1 | 1 | OOM |" in text
    assert "| torch | 1 | 4 | n/a |" in text
    assert "| torch | 4 | 32 | failed |" in text
    assert "A remark." in text


def test_tidy_csv(folder: Path) -> None:
    found = rows(folder / "throughput.csv")
    by_cell = {(r["precision"], r["batch_size_per_device"], r["framework"], r["topology"]): r for r in found}
    assert len(by_cell) == len(found)
    best = by_cell["fp32", "32", "mxnet-horovod", "4n8g"]
    assert float(best["median_samples_per_s"]) == 3671.45
    assert (best["nodes"], best["devices"], best["global_batch_size"]) == ("4", "32", "1024")
    oom = by_cell["fp32", "96", "mxnet-horovod", "1n1g"]
    assert (oom["status"], oom["median_samples_per_s"], oom["speedup"]) == ("oom", "", "")
    failed = by_cell["fp32", "32", "torch", "4n8g"]
    assert (failed["status"], failed["median_samples_per_s"], failed["repeats_asked"]) == ("failed", "", "7")
    no_baseline = by_cell["fp16", "64", "torch", "1n2g"]
    assert (no_baseline["speedup"], no_baseline["efficiency"]) == ("", "")
    memory = {(r["batch_size_per_device"], r["topology"]): r for r in rows(folder / "memory.csv")}
    assert memory["96", "1n1g"]["peak_memory_bytes"] == ""


def test_memory_table_shows_oom(folder: Path) -> None:
    text = (folder / "memory.md").read_text(encoding="utf-8")
    assert (
        "| 96 | fp32 | mxnet-horovod | 1n1g | OOM |" in text and "| 32 | fp32 | mxnet-horovod | 1n1g | 10,316 |" in text
    )


def test_latex_is_balanced(folder: Path) -> None:
    text = (folder / "throughput.tex").read_text(encoding="utf-8")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 3
    for line in text.splitlines():
        if line.endswith(r"\\") and "&" in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 8


def test_devices_on_a_cpu_are_not_called_gpus(tmp_path: Path) -> None:
    cpu = {"kind": "cpu", "name": "some CPU", "count": 2, "fp16_native": False}
    found = summary.summarize(write_series(tmp_path, {"1n1g": [5.0]}, device_found=cpu), repeats=1)
    header, _ = table_files.printed(throughput.table(cells.groups([found])[0]))
    assert "device_num" in header
    assert "gpu_num" not in header


def test_switches_are_in_the_title(tmp_path: Path) -> None:
    options = {
        "clip": "global_norm",
        "compile": True,
        "gradient_accumulation": 4,
        "data": "synthetic",
        "remove_padding": True,
        "cuda_graph": "step",
    }
    path = write_record(tmp_path, record(spec(options=options), 10.0))
    group = cells.groups([summary.summarize([path], repeats=1)])[0]
    assert titles.title(group) == (
        "Batch size = 32, fp32, W/ compile & W/ clip by global norm & W/O checkpointing & "
        "W/ CUDA graph of the whole step & W/O padding & "
        "W/ accumulation of 4 & W/ synthetic data"
    )


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r\n=1"])
def test_no_formula_in_a_spreadsheet(text: str) -> None:
    assert markup.spreadsheet(text)[0] == "'"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.12345, "0.1235"), (9.9999, "10.00"), (150.11, "150.1"), (999.96, "1,000"), (14822.31, "14,822")],
)
def test_reading(value: float | None, text: str) -> None:
    assert numbers.reading(value) == text


@pytest.mark.parametrize("text", ["{", "{}", '[{"benchmark": "bert"}]', '[{"batch": "32"}]'])
def test_what_is_not_a_list_of_cells(text: str) -> None:
    with pytest.raises(UserError, match="--expected"):
        cells.read_asked(text)


def test_what_a_proof_covers_is_printed(tmp_path: Path) -> None:
    proof = {**json.loads((GOLDEN / "equivalence.json").read_text()), "covers": ["fp32", "dropout 0 (measured: 0.1)"]}
    (tmp_path / "equivalence.json").write_text(json.dumps(proof))
    compared = read_equivalence(tmp_path / "equivalence.json")
    found = summary.summarize(write_series(tmp_path, {"1n1g": [5.0]}), repeats=1, equivalence=compared)
    write_tables(Scope(cells.groups([found])), tmp_path / "tables")
    line = "* torch: numerical equivalence is shown for: fp32; dropout 0 (measured: 0.1)"
    assert line in (tmp_path / "tables/throughput.md").read_text()


@pytest.mark.slow
def test_the_tensor_that_is_furthest_off_stands_in_the_table(tmp_path: Path) -> None:
    """With what was not compared; an equivalence check of losses alone has no such table, and its plot has them
    alone."""
    proof = json.loads((GOLDEN / "equivalence.json").read_text())
    losses = proof["frameworks"]["torch"]["1n1g"]

    def written(found: dict[str, Any]) -> str | None:
        proof["frameworks"] = {"torch": {topology: {**losses, **one} for topology, one in found.items()}}
        (tmp_path / "equivalence.json").write_text(json.dumps(proof))
        compared = read_equivalence(tmp_path / "equivalence.json")
        numerical_equivalence.write_plot(compared, tmp_path / "equivalence.svg")
        made = summary.summarize(write_series(tmp_path, {"1n1g": [5.0]}), repeats=1, equivalence=compared)
        shown = numerical_equivalence.table(Scope(cells.groups([made])))
        return shown and table_files.markdown(shown)

    def updates(difference: float, verdict: str = "equal") -> dict[str, Any]:
        tensors = {"query": {"difference": difference, "tolerance": 1e-4}, "key": {"difference": 0, "tolerance": 2e-4}}
        worst = {"worst": "query", **tensors["query"], "tensors": tensors, "left_out": {"no gradient": ["bias"]}}
        return {"updates": {"verdict": verdict, "reason": None, **worst}}

    assert written({"1n1g": {}}) is None
    alone = (tmp_path / "equivalence.svg").read_text()
    line = "| torch | fp32 | equal | 2.0e-07 | 2, 1 left out | query | 5.0e-05 | 1.0e-04 |"
    found = written({"1n1g": updates(1e-5), "1n2g": updates(5e-5)})
    assert found is not None and line in found, found
    assert (tmp_path / "equivalence.svg").read_text().count('id="axes_') == 2 and alone.count('id="axes_') == 1
    blind = {"updates": {"verdict": "not compared", "reason": "it cannot show its weights"}}
    found = written({"1n1g": updates(1e-5), "1n2g": blind})
    assert found is not None and "not compared: 1n2g: it cannot show its weights" in found
    found = written({"1n1g": updates(1e-3, "different"), "1n2g": blind})
    assert found is not None and "| 1.0e-03 | 1.0e-04 |" in found


def test_a_precision_that_is_no_fp32_is_marked_alone(tmp_path: Path) -> None:
    proof = json.loads((GOLDEN / "equivalence.json").read_text())
    equal, covers = proof["frameworks"]["torch"]["1n1g"], ["fp32 with a reference", "fp16 with fp32"]
    wrong = {**equal, "verdict": "different", "reason": "its loss is off", "largest_difference": 0.5, "tolerance": 0.1}
    proof |= {"frameworks": {"torch": {"1n1g": equal}}, "precisions": {"torch": {"fp16": wrong}}, "covers": covers}
    (tmp_path / "equivalence.json").write_text(json.dumps(proof))
    compared = read_equivalence(tmp_path / "equivalence.json")
    fp32 = summary.summarize(write_series(tmp_path, {"1n1g": [5.0]}), repeats=1, equivalence=compared)
    half = compared.of("torch", "fp16")
    assert fp32.equivalence is not None and half is not None
    assert (fp32.equivalence["torch"].covers, half.covers) == (covers[:1], covers)
    assert (half.verdict, half.reason, half.tolerance) == ("different", "fp16: its loss is off", 0.1)
    fp16 = fp32.model_copy(update={"precision": "fp16", "equivalence": {"torch": half}})
    found = {group.precision: group.cells[0].shown for group in cells.groups([fp32, fp16])}
    assert found == {"fp32": "torch", "fp16": "torch (unequal)"}
