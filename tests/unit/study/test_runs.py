"""A configuration is expanded to runs; their canonical JSON, their paths, and the identity of their data."""

import json
from typing import Any

import pytest

from throughline.spec import Steps
from throughline.study import runs
from throughline.study.config import Config, load
from throughline.study.runs import read_spec

BLOCK = {
    "sequence_length": 32,
    "topologies": ["1n1g", "2n4g"],
    "batch": {"fp32": [8, 16], "fp16": [8]},
    "repeats": 2,
    "extras": ["aa", "synthetic", "no_gradient_sync"],
}


@pytest.fixture
def config() -> Config:
    return load([], {"benchmarks": {"b": BLOCK}})


def test_the_whole_grid_is_expanded_once_and_repeats_are_interleaved(config: Config) -> None:
    specs = runs.expand(config)
    assert len({spec.record for spec in specs}) == len(specs) == 4 * (3 * 2 * 2)  # derived runs; the grid of a block
    repeats = [spec.repeat for spec in specs]
    assert repeats == sorted(repeats)
    spec = specs[0]
    assert spec.record == "results/b/bz8_fp32/torch/1n1g/run1.json" and spec.summary == "results/b/bz8_fp32.json"
    assert spec.log == "results/b/bz8_fp32/torch/1n1g/run1.log"


def test_a_step_and_the_parts_of_it_are_measured_one_after_the_other(config: Config) -> None:
    order = [spec for spec in runs.expand(config) if spec.repeat == 1 and spec.benchmark != "b__aa"]
    cells = [(spec.cell.split("/")[1], spec.framework, spec.topology) for spec in order]
    assert cells == [cell for cell in dict.fromkeys(cells) for _ in ("b", "b__synthetic", "b__no_gradient_sync")]
    assert {spec.benchmark for spec in runs.expand(config)[-4:]} == {"b__aa"}
    by_name = {spec.benchmark: spec for spec in runs.expand(config)}
    assert (by_name["b__synthetic"].options.data, by_name["b__synthetic"].corpus) == ("synthetic", None)
    assert [name for name, spec in by_name.items() if not spec.options.gradient_sync] == ["b__no_gradient_sync"]
    assert config.block("b__aa") == config.benchmarks["b"]
    assert all(read_spec(spec.canonical) == spec and "threads" not in spec.canonical for spec in runs.expand(config))


def test_a_specification_has_the_job_and_no_steps_of_its_own() -> None:
    block = BLOCK | {"topologies": ["1n1g", "1n2g"], "batch": {"fp32": [4]}, "extras": [], "repeats": 1}
    block |= {"frameworks": ["hf-trainer"], "options": {"gradient_accumulation": 4}, "steps": {"warmup": 7, "timed": 9}}
    one, two = runs.expand(load([], {"benchmarks": {"b": {**block, "job": {"samples": 64, "held_out": 10}}}}))
    assert json.loads(one.canonical)["job"] == {"held_out": 10, "samples": 64} and "steps" not in one.canonical
    assert [spec.timed for spec in (one, two)] == [Steps(warmup=0, timed=count) for count in (8, 4)]
    assert read_spec(one.canonical) == one


def identity(**corpus: Any) -> object:
    return load([], {"corpus": corpus}).corpus.identity("seq32")


VOCABULARY = {"path": "v.txt", "sha256": "a" * 64}


def test_the_identity_of_the_corpus_is_what_decides_its_data() -> None:
    assert identity() == identity(parts=1) == identity(extractor="wikiextractor")
    assert identity(dump="/here/wiki.xml.bz2") == identity(dump="/there/wiki.xml.bz2")
    assert identity(vocabulary=VOCABULARY | {"lower_case": True}) == identity(vocabulary=VOCABULARY)
    changes: list[dict[str, Any]] = [
        {},
        {"masking": {"seed": 1}},
        {"shards": {"training": 9}},
        {"sequences": {"32": 4}},
        {"dump": "other.xml"},
        {"masking": {"dupe_factor": 1}},
        {"masking": {"dynamic": True, "dupe_factor": 1}},
        {"extractor": "throughline"},
        {"vocabulary": VOCABULARY},
        {"vocabulary": VOCABULARY | {"lower_case": False}},
    ]
    assert len({str(identity(**change)) for change in changes}) == len(changes)
