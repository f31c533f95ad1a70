"""Targets: what the configuration asks for under a file's name, and the error for a file that it does not ask for."""

from __future__ import annotations

from typing import Any

import pytest

from throughline.files import UserError
from throughline.study import presets, runs
from throughline.study.config import load
from throughline.study.presets import of_a_preset
from throughline.study.runs import read_spec
from throughline.study.targets import Targets, absent

BLOCK: dict[str, Any] = {
    "sequence_length": 32, "topologies": ["1n1g", "1n2g"], "batch": {"fp32": [8]}, "repeats": 2,
    "extras": ["aa", "synthetic"],
    "remarks": "cold", "strict": True,
}  # fmt: skip
RUN = {"benchmark": "b", "batch": "8", "precision": "fp32", "framework": "torch", "topology": "1n2g", "repeat": "2",
       "quantity": "batch"}  # fmt: skip


@pytest.fixture
def targets() -> Targets:
    config = load([], {"benchmarks": {"b": BLOCK, "c": {"sequence_length": 128, "options": {"data": "synthetic"}}}})
    specs = runs.expand(config)
    search, check = "results/b/max_batch_fp32.json", "results/b/convergence_bz8_fp32_torch_1n2g.json"
    return Targets(config, specs, proofs={"b": specs[:1]}, searches={search: specs[:2]}, checks={check: specs[2]})


def test_what_is_asked_for_is_found(targets: Targets) -> None:
    assert targets.run(**RUN).record == "results/b/bz8_fp32/torch/1n2g/run2.json"
    assert targets.records(**RUN)[0] == "results/b/bz8_fp32/torch/1n1g/run1.json"
    assert targets.summaries_of(benchmark="b") == ["results/b/bz8_fp32.json"]
    assert targets.extras(benchmark="b") == ["results/b__synthetic/bz8_fp32.json", "results/b__aa/bz8_fp32.json"]
    assert targets.extras(benchmark="c") == []
    assert [len(targets.proof(benchmark="b")), len(targets.search(**RUN))] == [1, 2]
    assert targets.check(**RUN) == list(targets.specs.values())[2]
    assert targets.manifests() == ["data/sample/seq32/manifest.json"]


def test_runs_go_in_their_order(targets: Targets) -> None:
    priorities = [
        targets.priority(**{**RUN, "topology": topology, "repeat": repeat})
        for repeat in "12"
        for topology in ("1n1g", "1n2g")
    ]
    assert priorities == sorted(priorities, reverse=True) and len(set(priorities)) == 4
    assert targets.priority(**RUN) > 0


@pytest.mark.parametrize(
    ("look_up", "change", "message"),
    [
        (
            "run",
            {"repeat": "3"},
            "run3.json is not in the configuration. It holds, with run1 to run5:\n  results/",
        ),
        ("records", {"batch": "9"}, "results/b/bz9_fp32.json is not in the configuration. It holds:\n  results/b/bz8_"),
        (
            "search",
            {"precision": "fp16"},
            "max_batch_fp16.json is not in the configuration. It holds:\n  results/b/",
        ),
        ("search", {"benchmark": "c"}, "next: add max_batch to benchmarks.c.extras"),
        ("check", {"benchmark": "c"}, "next: set benchmarks.c.convergence"),
        ("check", {"batch": "9"}, "It holds:\n  results/b/convergence_bz8_fp32_torch_1n2g.json"),
    ],
)
def test_what_is_not_is_answered_with_what_is(
    targets: Targets, look_up: str, change: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        getattr(targets, look_up)(**{**RUN, **change})
    assert message in str(caught.value)


def test_an_unknown_benchmark_is_answered_with_those_there_are(targets: Targets) -> None:
    with pytest.raises(UserError, match=r"benchmark d is not .* It holds: b, b__synthetic, b__aa, c$"):
        targets.summaries_of(benchmark="d")
    with pytest.raises(UserError, match=r"an equivalence check for c, which compares no frameworks .* It holds: b$"):
        targets.proof(benchmark="c")


def test_of_many_targets_the_most_similar_are_named() -> None:
    there = [f"results/b/bz{batch}_fp32.json" for batch in range(1, 40)]
    said = str(absent("results/b/bz50_fp32.json", there))
    assert said.count("results/b/bz") == 4 and said.endswith(" and 36 more")
    assert "zzz is not in the configuration. It holds: 0, 1, 2 and 6 more" in str(absent("zzz", map(str, range(9))))


@pytest.mark.slow
def test_a_target_of_a_preset_is_answered_with_the_command(targets: Targets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(presets.WORKFLOW)
    target = "results/gpt2/bz2_fp32.json"
    assert of_a_preset(target) == (f"gpt2-cpu.yaml asks for it: snakemake {target} --configfile presets/gpt2-cpu.yaml")
    with pytest.raises(UserError, match=r"next: gpt2-cpu\.yaml asks for it"):
        targets.records(benchmark="gpt2", batch="2", precision="fp32")
    assert of_a_preset("results/nobody/bz2_fp32.json") is None


def test_what_a_summary_has_to_know(targets: Targets) -> None:
    options, derived = (targets.summary_options(benchmark=name, batch="8", precision="fp32") for name in ("b", "b__aa"))
    assert (
        options[:3:2] == ["--spec", "--asked"] and options[3] == "2" and options[6:] == ["--remarks=cold", "--strict"]
    )
    assert '"efficiency"' in options[5] and '"goals":null' in derived[5]
    assert read_spec(options[1]).summary == "results/b/bz8_fp32.json"


def test_the_corpus_is_made_where_a_block_reads_it_or_nothing_is_measured() -> None:
    assert load([]).reads("corpus") and load([], {"benchmarks": {"b": {}}}).reads("corpus")
    synthetic = {"b": {"options": {"data": "synthetic"}}}
    assert not load([], {"benchmarks": synthetic}).reads("corpus")
    assert load([], {"benchmarks": synthetic | {"c": {}}}).reads("corpus")


def test_pairs_are_judged_with_the_blocks_that_go_without_one_option() -> None:
    """The CSV is made from what the page compares: the benchmark's own block, and the blocks that lack one option of
    it."""
    blocks = {
        "plain": {"sequence_length": 32, "batch": {"fp32": [8]}, "extras": ["aa"]},
        "quick": {"sequence_length": 32, "batch": {"fp32": [8]}, "options": {"compile": True}},
        "both": {"sequence_length": 32, "batch": {"fp32": [8]}, "options": {"compile": True, "clip": "norm"}},
        "long": {"sequence_length": 128, "batch": {"fp32": [8]}},
    }
    config = load([], {"benchmarks": blocks})
    targets = Targets(config, runs.expand(config), {}, {}, {})
    assert targets.compared(benchmark="plain") == ["results/plain__aa/bz8_fp32.json"]
    plain = ["results/plain/bz8_fp32.json", "results/plain__aa/bz8_fp32.json"]
    assert sorted(targets.compared(benchmark="quick")) == plain
    assert targets.compared(benchmark="both") == ["results/quick/bz8_fp32.json"]
    assert targets.compared(benchmark="long") == []
    assert sorted(targets.compared(benchmark="plain__aa")) == plain[:1]
