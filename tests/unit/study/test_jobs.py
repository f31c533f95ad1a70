"""A block's `job`: what it decides, and which mistakes in it are reported before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from throughline.spec import Steps
from throughline.study import config
from throughline.study.runs import expand, read_spec
from throughline.study.targets import Targets


def loaded(folder: Path, **changes: Any) -> config.Config:
    """Load a block with a job on one and two devices."""
    block: dict[str, Any] = {
        "sequence_length": 32,
        "frameworks": ["hf-trainer"],
        "topologies": ["1n1g", "1n2g"],
        "batch": {"fp32": [4]},
        "options": {"gradient_accumulation": 4},
        "job": {"samples": 64, "held_out": 10},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps({"benchmarks": {"mlm": block | changes}}))
    return config.load([path])


def test_a_specification_has_the_job_and_no_steps_of_its_own(tmp_path: Path) -> None:
    one, *_, two = expand(loaded(tmp_path, steps={"warmup": 7, "timed": 9}, repeats=1))
    assert json.loads(one.canonical)["job"] == {"held_out": 10, "samples": 64} and "steps" not in one.canonical
    steps = [spec.timed for spec in (one, two)]
    assert steps == [Steps(warmup=0, timed=count) for count in (8, 4)]
    assert read_spec(one.canonical) == one


def test_its_samples_are_the_task_that_is_priced(tmp_path: Path) -> None:
    for changes, expected in (({}, 128), ({"total_samples": 7}, 7)):
        study = loaded(tmp_path, **changes)
        targets = Targets(study, expand(study), {}, {}, {})
        options = targets.summary_options(benchmark="mlm", batch="4", precision="fp32")
        assert json.loads(options[options.index("--terms") + 1])["total_samples"] == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"job": {"samples": 72}}, "job.samples = 72: a step of batch 4 on 1n1g takes 16 samples; choose a multiple"),
        ({"job": {"samples": 48}}, "job.samples = 48: a step of batch 4 on 1n2g takes 32 samples"),
        (
            {"options": {}, "global_batch": 48},
            "job.samples = 64: a step of batch 4 on 1n1g takes 48 samples; choose a multiple",
        ),
        ({"convergence": {}}, "job: a convergence check has steps of its own"),
        ({"job": {"epochs": 0}}, "job.epochs"),
    ],
)
def test_mistakes(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(config.ConfigError) as caught:
        loaded(tmp_path, **changes)
    assert expected in str(caught.value)
