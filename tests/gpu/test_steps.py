"""What one step launches, in every case of matrix.py: held by the committed table expected.csv.

`make test-gpu-dry UPDATE=1` writes the table again. Its change belongs into the commit that causes it.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import cases
import lane
import matrix
import pytest
import table

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.csv"
NOISE = {1: 0.02, 8: 0.15}
"""The share by which a peak of memory may differ, by ranks. With several, it depends on when a thread of PyTorch lets
go of the last message."""
KERNELS = {"memory-efficient": "fmha_cutlass", "FlashAttention": "pytorch_flash", "cuDNN": "Execute attention"}
"""Map the first word of a record about attention to a part of its kernels' names."""
ZERO = ("waits", "pageable", "mallocs", "compiled")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Map each case to what was counted now. All cases are counted at once."""
    return counted(matrix.cases(), tmp_path_factory.mktemp("steps") / "results")


def counted(asked: list[str], results: Path, **more: Any) -> dict[str, dict[str, Any]]:
    lines = "\n".join(json.dumps(cases.parse(case) | more) for case in asked)
    command = [str(lane.python()), str(HERE / "counting.py"), str(results)]
    subprocess.run(command, input=lines, text=True, env=lane.variables(), check=True, timeout=1500)
    return {one["name"]: one for one in map(json.loads, results.read_text().splitlines())}


@pytest.fixture(scope="module")
def rows(told: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Map each case to its row."""
    found = {case: {name: str(value) for name, value in table.row(one).items()} for case, one in told.items()}
    if os.environ.get("GPU_DRY_UPDATE"):
        write(found)
    return found


def write(found: dict[str, dict[str, str]]) -> None:
    with EXPECTED.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, table.COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(found[case] for case in sorted(found))


@pytest.fixture(scope="module")
def expected(rows: dict[str, Any]) -> dict[str, dict[str, str]]:
    with EXPECTED.open(newline="") as stream:
        return {row["case"]: row for row in csv.DictReader(stream)}


def marked() -> list[Any]:
    """Return every case; those of KNOWN are expected to fail, and it is an error if they do not."""
    return [
        pytest.param(case, marks=pytest.mark.xfail(reason=matrix.KNOWN[case], strict=True))
        if case in matrix.KNOWN
        else case
        for case in matrix.cases()
    ]


def test_what_is_known_to_break_a_rule_is_a_case() -> None:
    assert not set(matrix.KNOWN) - set(matrix.cases())


@pytest.mark.parametrize("case", marked())
def test_nothing_stops_a_timed_step(rows: dict[str, dict[str, str]], case: str) -> None:
    row = rows[case]
    assert row["note"] == "" or row["note"].startswith("unsupported: ")
    assert {name: row[name] for name in ZERO if row.get(name, "0") != "0"} == {}


@pytest.mark.parametrize("case", list(matrix.recorded()))
def test_a_recorded_step_is_launched_with_one_call(rows: dict[str, dict[str, str]], case: str) -> None:
    """Beside the graph: a copy for each tensor of the batches, the loss, and the state of the random numbers."""
    row = rows[" ".join(case.split())]
    if not row["note"]:
        assert row["graphs"] == "1"
        assert int(row["by_host"]) <= 1 + 5 * (2 if "gradient_accumulation" in case else 1) + 1 + 2


def test_no_recorded_step_uses_memory_that_was_freed(tmp_path: Path) -> None:
    asked = [" ".join(case.split()) for case in matrix.recorded() if "compile" not in case]
    # It is not in the table: when a thread of PyTorch lets go of the rounded gradients, and so the peak, differs.
    asked.append("bert-tiny bf16 cuda_graph=step ranks=8 reduce_dtype=bf16")
    found = counted(asked, tmp_path / "results", checked=True)
    assert {case: one["error"] for case, one in found.items() if "error" in one} == {}
    assert sum("steps" in one for one in found.values()) > 10


@pytest.mark.parametrize("case", matrix.attending())
def test_attention_is_computed_by_the_kernel_that_the_record_names(told: dict[str, dict[str, Any]], case: str) -> None:
    """On every card, and by the kernels that PyTorch has for this card."""
    one = told[case]
    if "unsupported" in one:
        return
    words = one["settings"]["attention"]
    names = [name for _, name, *_ in one["steps"][-1] if any(part in name for part in KERNELS.values())]
    (claimed,) = [kernel for kernel in KERNELS if words.startswith(kernel)]
    assert names
    assert all(KERNELS[claimed] in name for name in names)
    if claimed == "memory-efficient":
        made_for = {"card=V100": "sm70", "card=T4": "sm75"}.get(
            next((w for w in case.split() if "card" in w), ""), "sm80"
        )
        assert all(f"_{made_for}" in name for name in names)


@pytest.mark.parametrize("case", matrix.cases())
def test_a_step_launches_what_the_table_says(
    rows: dict[str, dict[str, str]], expected: dict[str, dict[str, str]], case: str
) -> None:
    now, before = rows[case], expected[case]
    exact = [name for name in table.COLUMNS if name != "peak_mib"]
    assert {name: now.get(name, "") for name in exact} == {name: before[name] for name in exact}
    if before["peak_mib"]:
        assert float(now["peak_mib"]) == pytest.approx(
            float(before["peak_mib"]), rel=NOISE[8 if "ranks=8" in case else 1]
        )


def test_the_table_has_no_other_cases(expected: dict[str, Any]) -> None:
    assert sorted(expected) == matrix.cases()
