"""Targets: what the configuration asks for under a file's name, and the error for a file that it does not ask for."""

import json
from typing import Any

import pytest

from throughline.files import UserError
from throughline.study import runs
from throughline.study.config import load
from throughline.study.runs import read_spec
from throughline.study.targets import Targets, absent

BLOCK: dict[str, Any] = {
    "sequence_length": 32, "topologies": ["1n1g", "1n2g"], "batch": {"fp32": [8]}, "repeats": 2,
    "extras": ["aa", "synthetic", "no_gradient_sync"], "predict": ["1n2g", "4n8g"],
    "remarks": "cold", "strict": True, "margin": 0.1,
}  # fmt: skip
RUN = {"benchmark": "b", "batch": "8", "precision": "fp32", "framework": "torch", "topology": "1n2g", "repeat": "2",
       "quantity": "batch"}  # fmt: skip


def of_blocks(**blocks: Any) -> Targets:
    config = load([], {"benchmarks": blocks})
    return Targets(config, runs.expand(config), {}, {}, {})


@pytest.fixture
def targets() -> Targets:
    made = of_blocks(b=BLOCK, c={"sequence_length": 128, "options": {"data": "synthetic"}})
    specs = list(made.specs.values())
    made.equivalence_checks = {"b": specs[:1]}
    made.searches = {"results/b/max_batch_fp32.json": specs[:2]}
    made.checks = {"results/b/convergence_bz8_fp32_torch_1n2g.json": specs[2]}
    return made


def test_what_is_asked_for_is_found(targets: Targets) -> None:
    assert targets.run(**RUN).record == "results/b/bz8_fp32/torch/1n2g/run2.json"
    assert targets.records(**RUN)[0] == "results/b/bz8_fp32/torch/1n1g/run1.json"
    assert targets.summaries_of(benchmark="b") == ["results/b/bz8_fp32.json"]
    derived = [f"results/b__{extra}/bz8_fp32.json" for extra in ("no_gradient_sync", "synthetic", "aa")]
    assert targets.extras(benchmark="b") == derived and targets.extras(benchmark="c") == []
    assert [len(targets.equivalence_check(benchmark="b")), len(targets.search(**RUN))] == [1, 2]
    assert targets.check(**RUN) == list(targets.specs.values())[2]
    assert targets.manifests() == ["data/sample/seq32/manifest.json"]
    assert {*targets.results()} > {*derived, *targets.checks}


@pytest.mark.parametrize(
    ("look_up", "change", "message"),
    [
        ("summaries_of", {"benchmark": "d"}, "It holds: b, b__synthetic, b__no_gradient_sync, b__aa, c"),
        ("equivalence_check", {"benchmark": "c"}, "an equivalence check for c, which compares no frameworks"),
        ("predicted", {"benchmark": "c"}, "predictions of c is not in the configuration"),
        ("run", {"repeat": "3"}, "run3.json is not in the configuration. It holds, with run1 to run5:\n  results/"),
        ("records", {"batch": "9"}, "results/b/bz9_fp32.json is not in the configuration. It holds:\n  results/b/bz8_"),
        ("search", {"benchmark": "c"}, "next: add max_batch to benchmarks.c.extras"),
        ("check", {"benchmark": "c"}, "next: set benchmarks.c.convergence"),
    ],
)
def test_what_is_not_is_answered_with_what_is(
    targets: Targets, look_up: str, change: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        is_of_benchmark = look_up in ("summaries_of", "equivalence_check", "predicted")
        getattr(targets, look_up)(**(change if is_of_benchmark else RUN | change))
    assert message in str(caught.value)


def test_of_many_targets_the_most_similar_are_named() -> None:
    there = [f"results/b/bz{batch}_fp32.json" for batch in range(1, 40)]
    said = str(absent("results/b/bz50_fp32.json", there))
    assert said.count("results/b/bz") == 4 and said.endswith(" and 36 more")
    assert "zzz is not in the configuration. It holds: 0, 1, 2 and 6 more" in str(absent("zzz", map(str, range(9))))


def test_only_topologies_that_are_not_measured_are_predicted(targets: Targets) -> None:
    assert targets.predicted("b") == {"topologies": ["4n8g"]}
    assert targets.predictions("b") == targets.every_prediction == ["results/b/predictions.json"]
    assert targets.predictions("b__no_gradient_sync") == [] == targets.predictions("c")
    assert targets.some_predictions() == ["results/b/predictions.json", "results/b/tables", "results/b/plots"]
    assert targets.made()["b"]["predict"] == targets.predicted("b") and "predict" not in targets.made()["c"]
    with pytest.raises(UserError, match="asks for no prediction") as none:
        of_blocks(b={**BLOCK, "predict": ["1n2g"]}).some_predictions()
    assert "predict" in str(none.value.next_step)
    plain = of_blocks(b={**BLOCK, "predict": []})
    assert plain.run(**RUN).canonical == targets.run(**RUN).canonical, "it is no part of a specification"


def test_what_a_summary_has_to_know(targets: Targets) -> None:
    options, derived = (targets.summary_options(benchmark=name, batch="8", precision="fp32") for name in ("b", "b__aa"))
    assert options[:3:2] == ["--spec", "--asked"] and options[3:7:3] == ["2", "--remarks=cold"]
    assert options[7:] == ["--strict"]
    terms = json.loads(options[5])
    assert (terms["margin"], terms["total_samples"]) == (0.1, None) and "efficiency" in terms["goals"]
    assert '"goals":null' in derived[5] and "margin" not in targets.made()["c"]["terms"]
    assert read_spec(options[1]).summary == "results/b/bz8_fp32.json"
    for more, samples in (({}, 128), ({"total_samples": 7}, 7)):
        made = of_blocks(b={"sequence_length": 32, "frameworks": ["hf-trainer"], "job": {"samples": 64}, **more}).made()
        assert made["b"]["terms"]["total_samples"] == samples


def test_the_corpus_is_made_where_a_block_reads_it_or_nothing_is_measured() -> None:
    assert load([]).reads("corpus") and load([], {"benchmarks": {"b": {}}}).reads("corpus")
    synthetic = {"b": {"options": {"data": "synthetic"}}}
    assert not load([], {"benchmarks": synthetic}).reads("corpus")
    assert load([], {"benchmarks": synthetic | {"c": {}}}).reads("corpus")


def test_pairs_are_judged_with_the_blocks_that_go_without_one_option() -> None:
    """The CSV is made from what the page compares: the benchmark's own block, and the blocks that lack one option of
    it."""
    short = {"sequence_length": 32, "batch": {"fp32": [8]}}
    targets = of_blocks(
        plain={**short, "extras": ["aa"]},
        quick={**short, "options": {"compile": True}},
        both={**short, "options": {"compile": True, "clip": "norm"}},
        long={**short, "sequence_length": 128},
        large={**short, "global_batch": 64},
        other={**short, "global_batch": 64, "options": {"clip": "norm", "dropout": 0.0}},
    )
    plain = ["results/plain/bz8_fp32.json", "results/plain__aa/bz8_fp32.json"]
    assert targets.compared(benchmark="plain") == plain[1:]
    assert sorted(targets.compared(benchmark="quick")) == plain == sorted(targets.compared(benchmark="large"))
    assert targets.compared(benchmark="both") == ["results/quick/bz8_fp32.json"]
    assert targets.compared(benchmark="long") == [] == targets.compared(benchmark="other")
    assert sorted(targets.compared(benchmark="plain__aa")) == plain[:1]
