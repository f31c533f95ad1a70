"""What a run comes to whose rank has a fake CUDA driver in its process (tests/gpu/double): never a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framework_lab import Lab
from process_helpers import compiled
from throughline import records
from throughline.files import UserError
from throughline.report.analysis import summary

SAYS = "a fake CUDA driver that computes nothing"


def test_a_run_on_a_double_is_invalid_and_says_why(lab: Lab, tmp_path: Path) -> None:
    """The library has nothing but the symbol by which a rank recognises the fake driver."""
    source = f'const char *null_cuda_present(void) {{ return "{SAYS}"; }}'
    library = compiled(tmp_path / "libcuda.so.1", source)
    done, path = lab.launch("fake", variables={"LD_PRELOAD": str(library)})
    assert done.returncode == 0, done.stderr
    record = records.read_run(path)
    assert (record.status, record.samples_per_s) == ("invalid", None)
    assert record.reason == f"rank 0 ran on {SAYS}, so nothing of this run is a result"
    assert record.environment["double_of_cuda"] is True
    cell = summary.summarize([path], repeats=1).frameworks["fake"]["1n1g"]
    assert (cell.statuses, cell.n_ok, cell.median_speed, cell.values) == ({"invalid": 1}, 0, None, [None])
    assert cell.reasons and SAYS in cell.reasons[0]


def test_a_run_without_one_says_nothing_about_it_and_cannot_pass_for_one_with_it(lab: Lab) -> None:
    _, path = lab.launch("fake")
    value = json.loads(path.read_text())
    assert value["status"] == "ok" and "double_of_cuda" not in value["environment"]
    value["environment"]["double_of_cuda"] = True
    path.write_text(json.dumps(value))
    with pytest.raises(UserError, match="none of its figures is a result"):
        records.read_run(path)
