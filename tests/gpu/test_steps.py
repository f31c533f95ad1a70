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
ZERO = ("waits", "pageable", "mallocs", "compiled")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Map each case to its row, which was counted now. All cases are counted at once."""
    results = tmp_path_factory.mktemp("steps") / "results"
    asked = "\n".join(json.dumps(cases.parse(case)) for case in matrix.cases())
    command = [str(lane.python()), str(HERE / "counting.py"), str(results)]
    subprocess.run(command, input=asked, text=True, env=lane.variables(), check=True, timeout=1500)
    told = [json.loads(line) for line in results.read_text().splitlines()]
    found = {one["name"]: {name: str(value) for name, value in table.row(one).items()} for one in told}
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


@pytest.mark.parametrize("case", matrix.recorded())
def test_a_recorded_step_is_launched_with_one_call(rows: dict[str, dict[str, str]], case: str) -> None:
    """Beside the graph: a copy for each tensor of the batches, the loss, and the state of the random numbers."""
    row = rows[" ".join(case.split())]
    if not row["note"]:
        assert row["graphs"] == "1"
        assert int(row["by_host"]) <= 1 + 5 * (2 if "accumulate" in case else 1) + 1 + 2


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
