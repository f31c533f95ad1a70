"""The configuration: what is read, how files are merged, and which error every mistake gives."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from throughline import workloads
from throughline.checks import workloads_page
from throughline.study import config, config_reference, runs, section
from throughline.study.benchmark import Benchmark, Options
from throughline.study.config import ConfigError, load
from throughline.study.corpus_section import Corpus, ShardFolder

ROOT = Path(__file__).parents[3]


def written(tmp_path: Path, text: str, name: str = "config.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load([written(tmp_path, text)])
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corpus: {partz: 3}", "corpus.partz: unknown key; did you mean parts"),
        ("corpus: {partz: 3}", "? docs/configuration.md lists all "),
        ("corpus: {zzz: 3}", "corpus.zzz: unknown key; allowed: name, dump, contact, mirrors"),
        ("imports: {b: {}}", "imports.b.logs"),
        ("{imports: {b: {logs: x}}, benchmarks: {b: {}}}", "imports.b: a benchmark has this name"),
        ("runs: {repeats: 0}", "runs.repeats = 0: Input should be greater than or equal to 1"),
        ("runs: {device: cud}", "runs.device = 'cud': allowed: auto, cuda, cpu; did you mean cuda?"),
        ("runs: {steps: {timed: 12:30}}", "runs.steps.timed = '12:30': Input should be a valid integer"),
        ("runs: {strict: on}", "runs.strict = 'on': allowed: true, false; did you mean true?"),
        ("runs: {strict: 1}", "runs.strict = 1: allowed: true, false"),
        ("runs: {seed: 1e-3}", "runs.seed = 0.001: Input should be a valid integer"),
        ("runs: {steps: {max_total_seconds: .inf}}", "runs.steps.max_total_seconds = inf:"),
        ("benchmarks: {b: {batch: {fp32: [0]}}}", "benchmarks.b.batch.fp32.0 = 0: Input should be greater"),
        (
            "benchmarks: {b: {batch: {fp8: [8]}}}",
            "benchmarks.b.batch.fp8: bert-tiny has no fp8; these have: llama-3.1-8b, ",
        ),
        (
            "benchmarks: {b: {batch: {mxfp8: [8]}}}",
            "benchmarks.b.batch.mxfp8: allowed: fp32, tf32, bf16, fp16, fp8; did you mean fp8?",
        ),
        (
            "benchmarks: {b: {batch: {fp32: [8]}, options: {fp8_scaling: rowwise}}}",
            "benchmarks.b.options.fp8_scaling = rowwise: `batch` has no fp8; remove the key",
        ),
        ("benchmarks: {b: {batch: {fp12: [8]}}}", "benchmarks.b.batch.fp12: allowed: fp32, tf32, bf16, fp16"),
        ("benchmarks: {b: {topologies: [2n0g]}}", "benchmarks.b.topologies.0 = '2n0g': a topology is <nodes>n"),
        ("benchmarks: {b: {topologies: 1n1g}}", "benchmarks.b.topologies = '1n1g': allowed: auto, a valid list"),
        ("benchmarks: {b: {frameworks: []}}", "benchmarks.b.frameworks = []: List should have at least 1 item"),
        ("benchmarks: {b: {frameworks: [torhc]}}", "torch, torch-horovod; did you mean torch?"),
        (
            "benchmarks: {b: {model: bert-tny}}",
            "b.model = 'bert-tny': did you mean bert-tiny, bert-mini or bert-layer? docs/workloads.md lists",
        ),
        ("benchmarks: {b: {sequence_length: 64}}", "benchmarks.b.sequence_length = 64: allowed: [32, 128]"),
        ("benchmarks: {b: {options: {clip: globalnorm}}}", "did you mean global_norm?"),
        (
            "benchmarks: {b: {options: {dropout: .nan}}}",
            "benchmarks.b.options.dropout = nan: Input should be a finite number",
        ),
        (
            "goals: {efficency: {}}",
            "goals.efficency: unknown key; allowed: efficiency, utilization, mean_utilization; did you mean",
        ),
        (
            "goals: {efficiency: {at_least: 80}}",
            "efficiency.at_least = 80: Input should be less than or equal to 1",
        ),
        ("prices: {A100: {per_hour: 1, currency: usd}}", "prices.A100.currency = 'usd': a currency is three capital"),
        ("prices: {A100: {currency: USD}}", "one of per_hour, per_month and purchase is needed"),
        ("prices: {A100: {per_month: 9, currency: USD}}", "goes with per_month or purchase"),
        ("prices: {A100: {purchase: 9, currency: USD}}", "purchase and years go together"),
        (
            "prices: {A100: {per_hour: 9, hours_a_year: 9, currency: USD}}",
            "since 0.4 this key is per_hour, the",
        ),
        ("prices: {A100: {per_hour: 9, devices: 8, currency: USD}}", "goes with per_month or purchase"),
        ("benchmarks: {b__aa: {}}", "benchmarks.b__aa: two underscores in a row are kept"),
        ("benchmarks: {B: {}}", "benchmarks.B: a name has lower-case letters"),
        ("benchmarks: {b: {topologies: [1n1g, 1n1g]}}", "listed twice: 1n1g"),
        ("benchmarks: {b: {batch: {fp32: [8, 8]}}}", "listed twice: 8"),
        ("benchmarks: {b: null}", "benchmarks.b = null: Input should be a map of keys"),
        (
            "benchmarks: {b: {options: {tensor_parallel: 2}}}",
            "benchmarks.b.batch.fp32: the 1 devices of 1n1g do not divide",
        ),
        (
            "benchmarks: {b: {model: gpt2-small, topologies: [1n8g], options: {tensor_parallel: 8}}}",
            "benchmarks.b.options.tensor_parallel = 8: gpt2-small has 12 heads and 50,304 vocabulary rows, which "
            "divide by 1, 2, 3, 4, 6, 12",
        ),
        (
            "benchmarks: {b: {model: gpt2-xl, topologies: [1n5g], options: {tensor_parallel: 5}}}",
            "gpt2-xl has 25 heads and 50,304 vocabulary rows, which divide by 1",
        ),
        (
            "benchmarks: {b: {options: {hybrid_shard_groups: 0}}}",
            "benchmarks.b.options.hybrid_shard_groups = 0: at least 1 group, or nodes",
        ),
        ("benchmarks: {b: {options: {hybrid_shard_groups: node}}}", "benchmarks.b.options.hybrid_shard_groups"),
        (
            "benchmarks: {b: {topologies: [1n3g], options: {expert_parallel: 2}}}",
            "the 3 replicas of 1n3g do not divide into sets of 2 that share experts",
        ),
        ("benchmarks: {b: {topologies: [1n3g], scaling: strong}}", "a batch of 32 does not divide over the 3 replicas"),
        ("benchmarks: {b: {model: matmul, batch: {fp32: [1]}, scaling: strong}}", "a call of matmul has no batch that"),
        (
            "benchmarks: {b: {batch: {fp32: [8, 12]}, topologies: [1n1g, 1n4g], global_batch: 100}}",
            "benchmarks.b.global_batch = 100: fp32 batch 8 on 1n1g takes 8 samples at once; the "
            "nearest that every batch and topology of this block divides: 96 or 192",
        ),
        (
            "benchmarks: {b: {global_batch: 64, options: {gradient_accumulation: 2}}}",
            "benchmarks.b.options.gradient_accumulation = 2: global_batch = 64 decides how many micro-batches a step "
            "has",
        ),
        ("benchmarks: {b: {global_batch: 0}}", "b.global_batch = 0: Input should be greater"),
        (
            "benchmarks: {b: {model: matmul, batch: {fp32: [1]}, global_batch: 64}}",
            "benchmarks.b.global_batch: a call of matmul has no batch that",
        ),
        (
            "benchmarks: {b: {options: {image_decoder: dali}}}",
            "benchmarks.b.options.image_decoder: bert-tiny reads no pictures",
        ),
        ("benchmarks: {b: {scaling: string}}", "allowed: weak, strong; did you mean strong?"),
        ("benchmarks: {b: {options: {sharding: all}}}", "allowed: none, zero1, shard_grad_op, full_shard"),
        ("corpus: {dump: 3}", "corpus.dump = 3: allowed: a valid string, a valid list, a map of keys"),
        (
            "corpus: {vocabulary: bert}",
            "corpus.vocabulary = 'bert': allowed: bert-base-uncased, a map of keys",
        ),
        ("corpus: {vocabulary: {path: v.txt}}", "corpus.vocabulary.sha256: missing"),
        ("corpus: {dump: {shard: x}}", "corpus.dump.shard: unknown key; allowed: shards, text; did you mean shards?"),
        (f"corpus: {{vocabulary: {{sha256: {'a' * 64}}}}}", "corpus.vocabulary: one of path and url is needed"),
        (f"corpus: {{vocabulary: {{path: v, url: 'http://x', sha256: {'a' * 64}}}}}", "one of path and url is needed"),
        ("corpus: {contact: somebody}", "corpus.contact = 'somebody': an e-mail or web address is needed"),
        ("corpus: {mirrors: [dumps.example.org]}", "corpus.mirrors.0 = 'dumps.example.org': an address begins with"),
        ("corpus: {sequences: {x: 1}}", "corpus.sequences.x: Input should be a valid integer"),
        ("corpus: {sequences: {32: 30}}", "30 predicts more than the 29 tokens there are"),
        (
            "corpus: {masking: {dynamic: true}}",
            "with dynamic, each epoch draws masks and the text is kept once",
        ),
        (
            "corpus: {dump: {shards: x}, masking: {dynamic: true, dupe_factor: 1}}",
            "finished shards keep the masks they have",
        ),
        ("[1, 2]", "not a map of keys to values"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    assert message in mistakes(tmp_path, text)


def test_every_mistake_is_listed_once(tmp_path: Path) -> None:
    text = mistakes(tmp_path, "runs: {repeats: 0, seeds: 1}\nbenchmarks: {b: {repeats: 0}, c: {}}")
    assert text.startswith("the configuration has 3 mistakes:")
    assert text.count("repeats = 0") == 2  # once for runs and once for b, but not for c, which inherits it from runs


def test_a_duplicate_key_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "runs:\n  repeats: 3\n  repeats: 4\n")
    with pytest.raises(ConfigError, match=r"line 3: found duplicate key .repeats"):
        load([path])


@pytest.mark.parametrize("text", ["runs: [", "runs: {a: b", "\tx: 1", "a: 1\n b: 2"])
def test_broken_yaml_is_an_error_with_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml is not valid YAML"):
        load([written(tmp_path, text)])


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(["absent.yaml"])


def test_numbers_are_read_as_people_write_them(tmp_path: Path) -> None:
    block = load([written(tmp_path, "benchmarks: {b: {optimizer: {learning_rate: 1e-3}}}")]).benchmarks["b"]
    assert block.optimizer.learning_rate == 0.001


def test_maps_merge_and_lists_are_replaced(tmp_path: Path) -> None:
    first = written(tmp_path, "benchmarks: {b: {topologies: [1n1g, 1n2g], repeats: 3}}", "a.yaml")
    second = written(tmp_path, "benchmarks: {b: {topologies: [1n4g]}, c: {}}", "b.yaml")
    merged = load([first, second], {"runs": {"repeats": "7"}, "corpus": {"sequences": {"128": "20", "512": "80"}}})
    assert merged.benchmarks["b"].topologies == ["1n4g"]
    assert merged.benchmarks["b"].repeats == 3
    assert merged.benchmarks["c"].repeats == 7
    assert 512 in merged.corpus.sequences


def test_null_in_a_later_file_takes_a_key_out(tmp_path: Path) -> None:
    first = written(
        tmp_path,
        "corpus: {sequences: {32: 5, 512: 80}, dump: {text: a.txt}}\nruns: {steps: {max_total_seconds: 10, timed: "
        "7}}\nbenchmarks: {a: {sequence_length: 32, steps: {max_total_seconds: null}}, b: {sequence_length: 32}, c: "
        "{sequence_length: 32, threads: 3}}",
        "a.yaml",
    )
    second = written(
        tmp_path,
        "corpus: {sequences: {512: null}, dump: {text: null, shards: x}}\nbenchmarks: {b: null, c: {threads: null}}",
        "b.yaml",
    )
    found = load([first, second])
    assert found.corpus.sequences == {32: 5} and found.corpus.dump == ShardFolder(shards="x")
    assert list(found.benchmarks) == ["a", "c"] and found.benchmarks["c"].threads == 1
    assert found.benchmarks["a"].steps.max_total_seconds is None, "so a block takes out what `runs` says"
    assert (found.benchmarks["a"].steps.timed, found.benchmarks["c"].steps.max_total_seconds) == (7, 10)
    assert list(load([first], {"benchmarks": {"a": "null"}}).benchmarks) == ["b", "c"]
    with pytest.raises(ConfigError, match=r"benchmarks\.d = null: Input should be a map of keys"):
        load([first, written(tmp_path, "benchmarks: {d: null}", "d.yaml")])


def nullable(model: type[Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key of a section that may be null, with its default."""
    for name, field in section.fields_of(model).items():
        if type(None) in typing.get_args(field.annotation):
            yield f"{path}{name}", field.get_default(call_default_factory=True)
        for option in section.branches(field.annotation):
            for inner in (option, *map(section.strip, typing.get_args(option))):
                if section.is_model(inner):
                    yield from nullable(inner, f"{path}{name}.")


def test_null_is_the_default_of_every_key_that_may_be_null() -> None:
    """Otherwise null in a later file would have two meanings."""
    keys = [*nullable(config.Config), *(key for name in workloads.FOLDERS for key in nullable(Benchmark.of(name)))]
    assert len(keys) > 50 and {name: default for name, default in keys if default is not None} == {}


def test_runs_can_be_set_again_inside_a_benchmark(tmp_path: Path) -> None:
    text = "runs: {steps: {warmup: 3, timed: 9}}\nbenchmarks: {b: {steps: {timed: 4}}}"
    steps = load([written(tmp_path, text)]).benchmarks["b"].steps
    assert (steps.warmup, steps.timed) == (3, 4)


@pytest.mark.parametrize("value", ["null", "true", "12", "1.5", "1e-3", "text"])
def test_text_from_the_command_line_is_read_as_what_it_is(value: str) -> None:
    expected: dict[str, Any] = {"null": None, "true": True, "12": 12, "1.5": 1.5, "1e-3": 0.001, "text": "text"}
    assert config._from_text({"k": [value]}) == {"k": [expected[value]]}


def test_the_shipped_configuration_spells_out_the_defaults() -> None:
    shipped = load([ROOT / "config.yaml"])
    assert shipped.corpus == Corpus()
    assert shipped.benchmarks["bert"].options == Options()


def test_presets_ask_for_runs_and_share_no_names() -> None:
    presets = {path.stem: load([path]) for path in [ROOT / "config.yaml", *(ROOT / "presets").glob("*.yaml")]}
    without = {name for name, preset in presets.items() if not runs.expand(preset)}
    assert without == {"accept-cpu", "accept-h100"}
    for one, other in itertools.combinations(presets.values(), 2):
        assert not set(one.benchmarks) & set(other.benchmarks)
        assert one.corpus.name != other.corpus.name or one.corpus == other.corpus


def test_reference_and_schema_are_up_to_date() -> None:
    assert config_reference.REFERENCE.read_text(encoding="utf-8") == config_reference.reference()
    assert config_reference.SCHEMA.read_text(encoding="utf-8") == config_reference.schema()


def test_the_page_of_the_workloads_is_up_to_date() -> None:
    page = workloads_page.reference()
    assert workloads_page.PAGE.read_text(encoding="utf-8") == page
    for folder in workloads.FOLDERS:
        assert f"\n## {folder}\n" in page
