"""A model with a vocabulary of one's own is not the model of its name, so its FLOPs are not held against that one's."""

import json
import zipfile
from pathlib import Path

import pytest

from throughline.comparables import plausibility
from throughline.records import Summary
from throughline.report.analysis import cells, our_results

KEPT = Path(__file__).parents[1] / "archive/two_topologies.zip"


@pytest.mark.parametrize(("rows", "is_held"), [(30528, True), (4032, False)])
def test_flops_of_another_vocabulary_are_not_doubted(rows: int, is_held: bool) -> None:
    value = json.loads(zipfile.ZipFile(KEPT).read("results/bert/bz32_fp32.json"))
    value["settings"]["torch"]["vocabulary_rows"] = rows
    for cell in value["frameworks"]["torch"].values():
        cell["work"]["flops_per_s"] /= 2  # what a model with fewer words needs
    measured = list(our_results.measured(cells.groups([Summary.model_validate(value)])))
    assert all(("tflops" in one.result.printed) == is_held for one in measured)
    rules = {doubt.rule for doubt in plausibility.about_measured(measured, [])}
    assert ("its own arithmetic" in rules) == is_held
