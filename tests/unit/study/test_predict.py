"""`predict` and `deadline_hours` in the configuration: which predictions are asked for, and what is a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from throughline.files import UserError
from throughline.study import runs
from throughline.study.config import ConfigError, load
from throughline.study.targets import Targets

BERT = {"model": "bert-tiny", "sequence_length": 32, "topologies": ["1n1g", "1n2g"], "batch": {"fp32": [8]}}


def targets(tmp_path: Path, block: dict[str, Any], **sections: Any) -> Targets:
    empty = tmp_path / "config.yaml"
    empty.write_text("")
    config = load([empty], {"benchmarks": {"bert": {**BERT, **block}, "other": BERT}, **sections})
    return Targets(config, runs.expand(config), {}, {}, {})


def test_measured_topologies_and_derived_runs_are_not_predicted(tmp_path: Path) -> None:
    asked = targets(tmp_path, {"extras": ["no_gradient_sync"], "predict": ["1n2g", "4n8g"]})
    assert asked.predicted("bert") == {"topologies": ["4n8g"], "deadline_hours": None}
    assert asked.every_prediction == ["results/bert/predictions.json"]
    assert asked.predictions("bert__no_gradient_sync") == [] == asked.predictions("other")
    assert asked.some_predictions() == ["results/bert/predictions.json", "results/bert/tables", "results/bert/plots"]
    assert asked.made()["bert"]["predict"] == asked.predicted("bert") and "predict" not in asked.made()["other"]
    every = targets(tmp_path, {"predict": []}, runs={"predict": ["4n8g"]})
    assert every.every_prediction == ["results/other/predictions.json"]


def test_a_specification_does_not_change(tmp_path: Path) -> None:
    plain, asked = (targets(tmp_path, block) for block in ({}, {"predict": ["4n8g"], "total_samples": 9}))
    assert [spec.canonical for spec in plain.specs.values()] == [spec.canonical for spec in asked.specs.values()]


def test_a_target_without_a_prediction_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="asks for no prediction") as none:
        targets(tmp_path, {"predict": ["1n2g"]}).some_predictions()
    assert "predict" in str(none.value.next_step)
    with pytest.raises(UserError, match="predictions of other is not in the configuration"):
        targets(tmp_path, {"predict": ["4n8g"]}).predicted("other")


@pytest.mark.parametrize(
    ("block", "mistake"),
    [
        ({"predict": ["4n8"]}, r"predict.*a topology is <nodes>n<devices per node>g"),
        ({"predict": ["4n8g", "4n8g"]}, "listed twice: 4n8g"),
        ({"predict": ["3n1g"], "scaling": "strong"}, "predict: 3n1g: a batch of 8 does not divide over the 3 replicas"),
        ({"predict": ["3n1g"], "global_batch": 64}, "predict: 3n1g: 3 replicas of 8 compute 24 samples at once"),
        ({"deadline_hours": 3.0}, "deadline_hours: it is the time for total_samples"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, block: dict[str, Any], mistake: str) -> None:
    with pytest.raises(ConfigError, match=mistake):
        targets(tmp_path, block)
