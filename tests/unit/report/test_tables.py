"""From summaries to tables: what is printed, what stays empty, and hostile text that does nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import (
    CPU,
    asked,
    group_of,
    read_csv,
    scoped,
    summarized,
    write_series,
    write_study,
    write_summaries,
)
from throughline import numbers
from throughline.files import UserError
from throughline.records import Equivalence, Summary, read_equivalence, read_summary
from throughline.report.analysis import cells, summary, titles
from throughline.report.render import table_files
from throughline.report.topic import Scope
from throughline.report.topics import checks, throughput, write_tables

GOLDEN = Path(__file__).parent / "golden_records"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    found = [read_summary(path) for path in write_summaries(root, write_study(root), remarks="A remark.")]
    wanted = cells.read_asked(asked(["4n8g"], repeats=7))
    write_tables(Scope(cells.groups(found, wanted)), root / "bert/tables")
    return root / "bert/tables"


def test_every_table_in_every_form(folder: Path) -> None:
    both = ("throughput", "figures", "memory", "utilization", "flops", "cost")
    expected = {f"{name}.{suffix}" for name in both for suffix in ("csv", "md")}
    assert {path.name for path in folder.iterdir()} == expected | {"beside.csv", "comparisons.csv", "throughput.tex"}


def test_what_happened_to_a_cell_stands_in_every_form(folder: Path) -> None:
    """test_golden.py has all bytes of a simpler study."""
    text = (folder / "throughput.md").read_text(encoding="utf-8")
    for line in ("| mxnet-horovod | 4 | 32 | 3671.45 | 24.46 |", "| mxnet-horovod | 2 | 16 | 1845.65 | 12.30 |",
                 "| 6/7 |", "| torch | 1 | 4 | n/a |", "| torch | 4 | 32 | failed |"):  # fmt: skip
        assert line in text
    found = read_csv(folder / "throughput.csv")
    by_cell = {(r["precision"], r["batch_size_per_device"], r["framework"], r["topology"]): r for r in found}
    assert len(by_cell) == len(found)
    failed, alone = by_cell["fp32", "32", "torch", "4n8g"], by_cell["fp16", "64", "torch", "1n2g"]
    assert (failed["status"], failed["median_samples_per_s"], failed["repeats_asked"]) == ("failed", "", "7")
    assert (alone["speedup"], alone["efficiency"]) == ("", ""), "it has no baseline"
    latex = (folder / "throughput.tex").read_text(encoding="utf-8")
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 3


def test_a_remark_stands_once_under_each_table(folder: Path) -> None:
    for path in folder.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        tables = sum(line.startswith("**") for line in text.splitlines())
        assert text.count("A remark.") == tables > 0, path.name


def test_devices_on_a_cpu_are_not_called_gpus(tmp_path: Path) -> None:
    group = group_of(summarized(tmp_path, {"1n1g": [5.0]}, device_found=CPU))
    header, _ = table_files.printed(throughput.table(group))
    assert "device_num" in header and "gpu_num" not in header


def test_switches_are_in_the_title(tmp_path: Path) -> None:
    options = {
        "clip": "global_norm", "compile": True, "gradient_accumulation": 4, "data": "synthetic", "remove_padding": True,
        "cuda_graph": "step",
    }  # fmt: skip
    assert titles.title(group_of(summarized(tmp_path, {"1n1g": [10.0]}, options=options))) == (
        "Batch size = 32, fp32, W/ compile & W/ clip by global norm & W/O checkpointing & "
        "W/ CUDA graph of the whole step & W/O padding & W/ accumulation of 4 & W/ synthetic data"
    )


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r\n=1"])
def test_no_formula_in_a_spreadsheet(text: str) -> None:
    assert table_files.in_spreadsheet(text)[0] == "'"


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


def check(root: Path, **changes: Any) -> tuple[Equivalence, Summary]:
    """Return the golden equivalence check with these changes, and the summary of a run that has it."""
    value = json.loads((GOLDEN / "equivalence.json").read_text()) | changes
    (root / "equivalence.json").write_text(json.dumps(value))
    compared = read_equivalence(root / "equivalence.json")
    return compared, summary.summarize(write_series(root, {"1n1g": [5.0]}), repeats=1, equivalence=compared)


LOSSES = json.loads((GOLDEN / "equivalence.json").read_text())["frameworks"]["torch"]["1n1g"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [({}, "is shown for: fp32; dropout 0 (measured: 0.1)"),
     ({"verdict": "different"}, "was tried (different) for: fp32; dropout 0 (measured: 0.1)"),
     ({"verdict": "unsupported", "reason": "one model"}, "is not checked (1n1g: one model)")],
)  # fmt: skip
def test_what_a_check_covers_is_printed(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    frameworks = {"torch": {"1n1g": LOSSES | changes}}
    _, found = check(tmp_path, covers=["fp32", "dropout 0 (measured: 0.1)"], frameworks=frameworks)
    write_tables(scoped(found), tmp_path / "tables")
    assert f"* torch: numerical equivalence {said}\n" in (tmp_path / "tables/throughput.md").read_text()


@pytest.mark.slow
def test_the_tensor_that_is_furthest_off_stands_in_the_table(tmp_path: Path) -> None:
    """With what was not compared; an equivalence check of losses alone has no such table."""

    def written(**found: Any) -> str:
        frameworks = {"torch": {topology: LOSSES | updates for topology, updates in found.items()}}
        compared, made = check(tmp_path, frameworks=frameworks)
        checks.write_equivalence(compared, tmp_path / "equivalence.svg")
        assert (tmp_path / "equivalence.svg").read_text().count('id="axes_') == 1
        shown = checks.equivalence(scoped(made))
        return table_files.markdown(shown) if shown else ""

    def updates(difference: float, verdict: str = "equal") -> dict[str, Any]:
        tensors = {"query": {"difference": difference, "tolerance": 1e-4}, "key": {"difference": 0, "tolerance": 2e-4}}
        worst = {"worst": "query", **tensors["query"], "tensors": tensors, "left_out": {"no gradient": ["bias"]}}
        return {"updates": {"verdict": verdict, "reason": None, **worst}}

    blind = {"updates": {"verdict": "not compared", "reason": "it cannot show its weights"}}
    line = "| torch | fp32 | equal | 2.0e-07 | 2, 1 left out | query | 5.0e-05 | 1.0e-04 |"
    assert written(**{"1n1g": {}}) == ""
    assert line in written(**{"1n1g": updates(1e-5), "1n2g": updates(5e-5)})
    assert "not compared: 1n2g: it cannot show its weights" in written(**{"1n1g": updates(1e-5), "1n2g": blind})
    assert "| 1.0e-03 | 1.0e-04 |" in written(**{"1n1g": updates(1e-3, "different"), "1n2g": blind})


def test_a_precision_that_is_no_fp32_is_marked_alone(tmp_path: Path) -> None:
    covers = ["fp32 with a reference", "fp16 with fp32"]
    wrong = LOSSES | {"verdict": "different", "reason": "its loss is off", "largest_difference": 0.5, "tolerance": 0.1}
    frameworks = {"torch": {"1n1g": LOSSES}}
    compared, fp32 = check(tmp_path, frameworks=frameworks, precisions={"torch": {"fp16": wrong}}, covers=covers)
    half = compared.of("torch", "fp16")
    assert fp32.equivalence is not None and half is not None
    assert (fp32.equivalence["torch"].covers, half.covers) == (covers[:1], covers)
    assert (half.verdict, half.reason, half.tolerance) == ("different", "fp16: its loss is off", 0.1)
    fp16 = fp32.model_copy(update={"precision": "fp16", "equivalence": {"torch": half}})
    found = {group.precision: group.cells[0].shown for group in cells.groups([fp32, fp16])}
    assert found == {"fp32": "torch", "fp16": "torch (unequal)"}
