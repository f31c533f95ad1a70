"""A configuration is expanded to runs; their canonical JSON and their paths."""

from __future__ import annotations

import json

import pytest

from throughline.files import UserError
from throughline.spec import Topology
from throughline.study import runs
from throughline.study.config import Config, load
from throughline.study.corpus_section import Corpus
from throughline.study.runs import read_spec
from throughline.study.section import DataIdentity

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


def test_topology() -> None:
    topology = Topology.parse("4n8g")
    assert (topology.nodes, topology.devices, topology.world, str(topology)) == (4, 8, 32, "4n8g")


@pytest.mark.parametrize("text", ["0n1g", "1n0g", "1n", "n1g", "1n1g ", "01n1g", "-1n1g", "1N1G"])
def test_what_is_no_topology(text: str) -> None:
    with pytest.raises(UserError, match="not a topology"):
        Topology.parse(text)


def test_the_whole_grid_is_expanded_once(config: Config) -> None:
    specs = runs.expand(config)
    assert len(specs) == 4 * (3 * 2 * 2)  # four blocks; pairs of batch and precision, topologies, repeats
    assert len({spec.record for spec in specs}) == len(specs)


def test_repeats_are_interleaved(config: Config) -> None:
    repeats = [spec.repeat for spec in runs.expand(config)]
    assert repeats == sorted(repeats)


def test_a_step_and_the_parts_of_it_are_measured_one_after_the_other(config: Config) -> None:
    order = [spec for spec in runs.expand(config) if spec.repeat == 1 and spec.benchmark != "b__aa"]
    cells = [(spec.cell.split("/")[1], spec.framework, spec.topology) for spec in order]
    assert cells == [cell for cell in dict.fromkeys(cells) for _ in ("b", "b__synthetic", "b__no_gradient_sync")]
    assert {spec.benchmark for spec in runs.expand(config)[-4:]} == {"b__aa"}


def test_derived_runs_lie_in_folders_of_their_own(config: Config) -> None:
    by_name = {spec.benchmark: spec for spec in runs.expand(config)}
    assert set(by_name) == {"b", "b__aa", "b__synthetic", "b__no_gradient_sync"}
    assert by_name["b__synthetic"].options.data == "synthetic"
    assert by_name["b__synthetic"].corpus is None
    assert [name for name, spec in by_name.items() if not spec.options.gradient_sync] == ["b__no_gradient_sync"]
    assert config.block("b__aa") == config.benchmarks["b"]


def test_paths(config: Config) -> None:
    spec = runs.expand(config)[0]
    assert spec.record == "results/b/bz8_fp32/torch/1n1g/run1.json"
    assert spec.log == "results/b/bz8_fp32/torch/1n1g/run1.log"
    assert spec.summary == "results/b/bz8_fp32.json"


def test_canonical_json_leaves_defaults_out_and_comes_back(config: Config) -> None:
    for spec in runs.expand(config):
        assert read_spec(spec.canonical) == spec
        assert "threads" not in json.loads(spec.canonical)


def identity(corpus: Corpus) -> DataIdentity:
    return corpus.identity("seq32")


def test_the_number_of_parts_changes_no_identity() -> None:
    one, four = (load([], {"corpus": {"parts": parts}}).corpus for parts in (1, 4))
    assert identity(one) == identity(four)


@pytest.mark.parametrize(
    "change",
    [
        {"masking": {"seed": 1}},
        {"shards": {"training": 9}},
        {"sequences": {"32": 4}},
        {"dump": "other.xml"},
        {"masking": {"dynamic": True, "dupe_factor": 1}},
        {"extractor": "throughline"},
        {"vocabulary": {"path": "v.txt", "sha256": "a" * 64}},
    ],
)
def test_what_changes_the_data_changes_the_identity(change: dict[str, object]) -> None:
    changed = load([], {"corpus": change}).corpus
    assert identity(changed) != identity(Config().corpus)


def test_masks_drawn_while_reading_are_an_identity_of_their_own_and_absent_from_others() -> None:
    once = load([], {"corpus": {"masking": {"dupe_factor": 1}}}).corpus
    drawn = load([], {"corpus": {"masking": {"dupe_factor": 1, "dynamic": True}}}).corpus
    assert identity(once) != identity(drawn)
    assert "dynamic" not in once.shard_parameters(32) and drawn.shard_parameters(32)["dynamic"] is True


def test_the_default_extractor_is_no_part_of_the_identity() -> None:
    assert "extractor" not in Config().corpus.decided_by("seq32")
    asked = load([], {"corpus": {"extractor": "wikiextractor"}}).corpus
    assert identity(asked) == identity(Config().corpus)


def test_a_cased_vocabulary_is_part_of_the_identity_and_the_default_is_not() -> None:
    vocabulary = {"path": "v.txt", "sha256": "a" * 64}
    plain, asked, cased = (
        load([], {"corpus": {"vocabulary": vocabulary | more}}).corpus
        for more in ({}, {"lower_case": True}, {"lower_case": False})
    )
    assert identity(plain) == identity(asked) != identity(cased)
    assert "lower_case" not in plain.decided_by("seq32") and cased.decided_by("seq32")["lower_case"] is False


def test_a_dump_counts_by_its_name_not_by_its_place() -> None:
    here, there = (load([], {"corpus": {"dump": f"{folder}/wiki.xml.bz2"}}).corpus for folder in ("/here", "/there"))
    assert identity(here) == identity(there)
