"""The configuration: what is read, how files are merged, which error every mistake gives, and the generated pages."""

import itertools
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from throughline import workloads
from throughline.checks import workloads_page
from throughline.frameworks.reference import filled
from throughline.study import config, config_reference, runs, section
from throughline.study.benchmark import Benchmark, Options
from throughline.study.config import ConfigError, load
from throughline.study.corpus_section import Corpus, ShardFolder

ROOT = Path(__file__).parents[3]
SHA = "a" * 64


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
        ("corpus: {dump: {shard: x}}", "corpus.dump.shard: unknown key; allowed: shards, text; did you mean shards?"),
        ("corpus: {dump: {text: 3}}", "corpus.dump.text = 3: allowed: a valid string, a list, such as [a, b]\n"),
        ("corpus: {vocabulary: {path: v.txt}}", "corpus.vocabulary.sha256: missing; it has to be given"),
        ("runs: {strict: on}", "runs.strict = 'on': allowed: true, false; did you mean true?"),
        ("runs: {steps: {max_total_seconds: .inf}}", "runs.steps.max_total_seconds = inf: Input should be a finite"),
        (
            "benchmarks: {b: {batch: {mxfp8: [8]}}}",
            "b.batch.mxfp8: allowed: fp32, tf32, bf16, fp16, fp8, program; did you mean",
        ),
        ("benchmarks: {b: {topologies: 1n1g}}", "benchmarks.b.topologies = '1n1g': allowed: auto, a list"),
        ("benchmarks: {b: {sequence_length: 64}}", "benchmarks.b.sequence_length = 64: allowed: [32, 128]"),
        ("benchmarks: {b: {topologys: [1n1g]}}", "topologys: unknown key; did you mean topologies or options?"),
        ("benchmarks: {b: {frameworks: [pytorch]}}", "b.frameworks.0 = 'pytorch': allowed: hf-loop, "),
        ("benchmarks: {b: {topologies: [2g]}}", "topologies.0 = '2g': a topology is <nodes>n<devices per node>g"),
        ("benchmarks: {b: {model: bert-smal}}", "b.model = 'bert-smal': did you mean bert-small, bert-mini or bert"),
        ("runs:\n  seed: 1\n strict: true", "config.yaml is not valid YAML\n  why:  while parsing a block map"),
        ("runs:\n  seed: 1\n  seed: 2", 'config.yaml, line 3: found duplicate key "seed"'),
        ("imports: {own: {logs: logs}}", "imports.own.logs = 'logs': Snakemake writes its own logs there"),
        ("benchmarks: {B: {}}", "benchmarks.B: a name has lower-case letters"),
        ("benchmarks: {b: null}", "benchmarks.b = null: Input should be a map of keys, such as {key: value}"),
        ("benchmarks: {b__aa: {}}", "benchmarks.b__aa: two underscores in a row are kept"),
        ("benchmarks: {b: {topologies: [1n1g, 1n1g]}}", "listed twice: 1n1g"),
        ("benchmarks: {b: {extras: [max_classes]}}", "max_classes: bert models have no key classes"),
        ("corpus: {sequences: {32: 30}}", "30 predicts more than the 29 tokens there are"),
        ("corpus: {masking: {dynamic: true}}", "with dynamic, each epoch draws masks"),
        ("corpus: {dump: {shards: x}, masking: {dynamic: true, dupe_factor: 1}}", "finished shards keep the masks"),
        (f"corpus: {{vocabulary: {{path: v, url: 'http://x', sha256: {SHA}}}}}", "one of path and url is needed"),
        ("{runs: {enough: 6}, benchmarks: {b: {}}}", "enough = 6: there are 5 repeats"),
        ("prices: {A100: {currency: USD}}", "one of per_hour, per_month and purchase is needed"),
        ("prices: {A100: {purchase: 9, currency: USD}}", "purchase and years go together"),
        ("{imports: {b: {logs: x}}, benchmarks: {b: {}}}", "imports.b: a benchmark has this name"),
        (
            "accept: {train: {program: mine}}",
            "accept.train.program = 'mine': allowed: none: add programs",
        ),
        ("accept: {train: brt}\nbenchmarks: {bert: {}}", "accept.train = 'brt': allowed: bert; did you mean bert?"),
        ("accept: {nodes: 2, hosts: [first]}", "nodes = 2: hosts has 1"),
        ("accept: {hosts: [first, first]}", "a host is listed twice"),
        ("accept: {hosts: ['n[1-8]']}", "without a range"),
        ("[1, 2]", "not a map of keys to values"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    said = mistakes(tmp_path, text)
    assert message in said and len(said.splitlines()) <= 4


MATMUL = "model: matmul, batch: {fp32: [1]}"
JOB = "frameworks: [hf-trainer], batch: {fp32: [4]}, options: {gradient_accumulation: 4}"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("batch: {fp8: [8]}", "batch.fp8: bert-tiny has no fp8; these have: llama-3.1-8b, "),
        (
            "model: gpt2-small, topologies: [1n8g], options: {tensor_parallel: 8}",
            "options.tensor_parallel = 8: gpt2-small has 12 heads and 50,304 vocabulary rows, which divide by 1, 2, 3, "
            "4, 6, 12",
        ),
        ("topologies: [1n3g], options: {expert_parallel: 2}", "batch.fp32: the 3 replicas of 1n3g do not divide"),
        (
            "batch: {fp32: [8, 12]}, topologies: [1n1g, 1n4g], global_batch: 100",
            "global_batch = 100: fp32 batch 8 on 1n1g takes 8 samples at once; the nearest that every batch and "
            "topology of this block divides: 96 or 192",
        ),
        ("global_batch: 64, options: {gradient_accumulation: 2}", "options.gradient_accumulation = 2: global_batch"),
        (f"{MATMUL}, extras: [synthetic]", "extras: synthetic: matmul trains nothing; remove the extra"),
        (f"{MATMUL}, scaling: strong", "scaling: a call of matmul has no batch that devices could share"),
        ("model: matmul, batch: {fp32: [8]}", "batch: a call of matmul has no batch; write batch: {fp32: [1]}"),
        ("options: {image_decoder: dali}", "options.image_decoder: bert-tiny reads no pictures"),
        ("frameworks: [torch@lost]", "frameworks.0 = 'torch@lost': "),
        (f"{JOB}, job: {{samples: 72}}", "job.samples = 72: a step of batch 4 on 1n1g takes 16 samples; choose a mul"),
        (f"{JOB}, job: {{}}, convergence: {{}}", "job: a convergence check has steps of its own"),
        ("convergence: {}, options: {gradient_sync: false}", "convergence: it needs options.data: real and"),
        (f"{MATMUL}, convergence: {{}}", "convergence: matmul has no figures of held-out data"),
        ("predict: [3n1g], scaling: strong", "predict: 3n1g: a batch of 32 does not divide over the 3 replicas"),
        ("convergence: {begin_from: c}", "convergence.begin_from = 'c': allowed: "),
        ("convergence: {begin_from: b}", "convergence.begin_from: b would begin with its own weights"),
    ],
)
def test_a_mistake_in_several_keys_of_a_block_is_named(tmp_path: Path, block: str, message: str) -> None:
    model = "" if "model:" in block else "sequence_length: 32, "
    assert f"benchmarks.b.{message}" in mistakes(tmp_path, f"benchmarks: {{b: {{{model}{block}}}}}")


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("{}", "it has no check whose weights could be taken; set benchmarks.a.convergence"),
        ("{convergence: {}, model: bert-mini}", "it trains bert-mini, and this one bert-tiny"),
        ("{convergence: {}, batch: {fp16: [8]}}", "it is not checked with fp32; add that to benchmarks.a.batch"),
    ],
)
def test_a_check_begins_with_the_weights_of_one_that_fits(tmp_path: Path, first: str, message: str) -> None:
    text = f"benchmarks: {{a: {first}, b: {{convergence: {{begin_from: a}}}}}}"
    assert f"benchmarks.b.convergence.begin_from = 'a': {message}" in mistakes(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist\n  next: check the path after --configfile"):
        load([tmp_path / "none.yaml"])


def test_a_mistake_is_listed_once(tmp_path: Path) -> None:
    text = mistakes(tmp_path, "runs: {repeats: 0, seeds: 1}\nbenchmarks: {b: {repeats: 0}, c: {}}")
    assert "has 3 mistakes:" in text and text.count("repeats = 0") == 2  # for runs and b, not for c, which inherits it


def test_maps_merge_and_lists_are_replaced(tmp_path: Path) -> None:
    first = written(tmp_path, "benchmarks: {b: {topologies: [1n1g, 1n2g], repeats: 3, steps: {timed: 4}}}", "a.yaml")
    second = written(tmp_path, "benchmarks: {b: {topologies: [1n4g]}, c: {optimizer: {learning_rate: 1e-3}}}", "b.yaml")
    values = {"runs": {"repeats": "7", "steps": {"warmup": "3"}}, "corpus": {"sequences": {"128": "20", "512": "80"}}}
    merged = load([first, second], values)
    b, c = merged.benchmarks["b"], merged.benchmarks["c"]
    assert (b.topologies, b.repeats, b.steps.warmup, b.steps.timed) == (["1n4g"], 3, 3, 4)
    assert (c.repeats, c.optimizer.learning_rate) == (7, 0.001) and 512 in merged.corpus.sequences


def test_null_in_a_later_file_takes_a_key_out(tmp_path: Path) -> None:
    first = written(
        tmp_path,
        "corpus: {sequences: {32: 5, 512: 80}, dump: {text: a.txt}}\n"
        "runs: {steps: {max_total_seconds: 10, timed: 7}}\n"
        "benchmarks: {a: {sequence_length: 32, steps: {max_total_seconds: null}}, b: {sequence_length: 32}, "
        "c: {sequence_length: 32, threads: 3}}",
        "a.yaml",
    )
    second = written(
        tmp_path,
        "corpus: {sequences: {512: null}, dump: {text: null, shards: x}}\nbenchmarks: {b: null, c: {threads: null}}",
    )
    read = load([first, second])
    assert read.corpus.sequences == {32: 5} and read.corpus.dump == ShardFolder(shards="x")
    assert list(read.benchmarks) == ["a", "c"] and read.benchmarks["c"].threads == 1
    assert read.benchmarks["a"].steps.max_total_seconds is None, "so a block takes out what `runs` says"
    assert (read.benchmarks["a"].steps.timed, read.benchmarks["c"].steps.max_total_seconds) == (7, 10)
    assert list(load([first], {"benchmarks": {"a": "null"}}).benchmarks) == ["b", "c"]
    with pytest.raises(ConfigError, match=r"benchmarks\.d = null: Input should be a map of keys"):
        load([first], {"benchmarks": {"d": None}})  # there is nothing to take out


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


def test_values_of_snakemake_are_read_as_the_yaml_that_the_user_wrote() -> None:
    """Snakemake reads YAML 1.1, in which 1e-4 is a text, and passes the values of --config as text."""
    texts = {
        "null": None,
        "true": True,
        "12": 12,
        "1.5": 1.5,
        "1e-3": 0.001,
        "text": "text",
        "see #5 # 6": "see #5 # 6",
    }
    for text, value in texts.items():
        assert config._from_text({"k": [text]}) == {"k": [value]}


def test_presets_ask_for_runs_and_share_no_names() -> None:
    presets = {path.stem: load([path]) for path in [ROOT / "config.yaml", *(ROOT / "presets").glob("*.yaml")]}
    shipped = presets["config"]
    assert shipped.corpus == Corpus() and shipped.benchmarks["bert"].options == Options(), "it spells out the defaults"
    without = {name for name, preset in presets.items() if not runs.expand(preset)}
    assert without == {"accept-cpu", "accept-h100"}
    for one, other in itertools.combinations(presets.values(), 2):
        assert not set(one.benchmarks) & set(other.benchmarks)
        assert one.corpus.name != other.corpus.name or one.corpus == other.corpus


def test_generated_pages_are_up_to_date() -> None:
    written = config_reference.REFERENCE.read_text(encoding="utf-8")
    assert written == filled(config_reference.REFERENCE, {"keys": config_reference.reference()})
    assert config_reference.SCHEMA.read_text(encoding="utf-8") == config_reference.schema()
    page = workloads_page.reference()
    assert workloads_page.PAGE.read_text(encoding="utf-8") == page
    assert all(f"\n## {folder}\n" in page for folder in workloads.FOLDERS)
