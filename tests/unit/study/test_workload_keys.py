"""A workload's parameters become keys of a block, and go into a specification and back."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest

from throughline import workloads
from throughline.spec import RunSpec
from throughline.study import benchmark, runs
from throughline.study.benchmark import Benchmark
from throughline.study.config import ConfigError, load
from throughline.study.runs import read_spec


@dataclass(frozen=True)
class Parameters(workloads.Part):
    image: int = workloads.key("pixels a side", default=32, least=8, most=512, stated=True)
    crop: bool = workloads.key("cut a random piece", default=True)
    pool: str = workloads.key("how pixels are pooled", default="max", choices=("max", "mean"))
    kinds: int = workloads.key("what a model tells apart", default=10, asked=False)


NOTHING = dict.fromkeys(workloads.Workload.__abstractmethods__)
"""In place of what a workload has to define, and these tests do not call."""


def synthetic(folder: str, parameters: type) -> Any:
    """Return a workload with these parameters. It says nothing else about itself."""
    values = {"models": (f"{folder}-small",), "parameters": parameters, **NOTHING}
    return type("MadeUp", (workloads.Workload,), values)()


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a workload with images and without data of its own."""
    neutral = workloads.of_folder
    mine = synthetic("patches", Parameters)
    monkeypatch.setattr(workloads, "FOLDERS", (*workloads.FOLDERS, "patches"))
    monkeypatch.setattr(workloads, "of_folder", lambda folder: mine if folder == "patches" else neutral(folder))
    workloads.models.cache_clear()
    yield
    workloads.models.cache_clear()


def specs(**block: Any) -> list[RunSpec]:
    return runs.expand(load([], {"benchmarks": {"b": {"model": "patches-small", **block}}}))


def test_parameters_are_keys_and_stand_flat_in_the_specification(patches: None) -> None:
    (spec, *_) = specs(image=64, crop=False)
    assert spec.parameters == Parameters(image=64, crop=False, pool="max", kinds=10)
    plain = json.loads(spec.canonical)
    assert (plain["image"], plain["crop"]) == (64, False)
    assert not {"parameters", "pool", "kinds", "corpus"} & set(plain)
    assert list(spec.values())[2:8] == ["model", *vars(spec.parameters), "batch"]
    assert read_spec(spec.canonical) == spec == read_spec(json.dumps(spec.values()))
    assert (spec.corpus, runs.manifest(spec), spec.options.data) == (None, None, "synthetic"), "it reads no data"
    text = specs()[0].canonical
    assert json.loads(text)["image"] == 32, "a stated parameter is there even if it is the default"
    with pytest.raises(ValueError, match="missing: image"):
        read_spec(text.replace('"image":32,', ""))
    config = load([], {"benchmarks": {"b": {"model": "patches-small", "image": 64}}})
    assert runs.unpacked(runs.packed(config), "b__aa")["benchmarks"]["b"]["image"] == 64  # type: ignore[index]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"image": 4}, "benchmarks.b.image = 4: Input should be greater than or equal to 8"),
        ({"imag": 64}, "did you mean image or margin?"),
        ({"sequence_length": 32}, "a key of bert, gpt2, hugging_face and layers models; patches models take: image, "),
        ({"model": "bert-tiny", "image": 64}, "a key of resnet and patches models; bert models take: sequence"),
    ],
)
def test_a_mistake_in_them_is_named_like_any_other(patches: None, block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        specs(**block)
    assert message in str(caught.value)


def test_core_names_are_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Wrong(workloads.Part):
        batch: int = workloads.key("a name that every block has", default=1)

    monkeypatch.setattr(workloads, "models", lambda: {"wrong-small": "wrong"})
    monkeypatch.setattr(workloads, "of_folder", lambda folder: synthetic("wrong", Wrong))
    with pytest.raises(TypeError, match="fields with names of core keys: batch"):
        Benchmark.of("wrong")
    assert {field.name for field in fields(RunSpec)} <= benchmark.RESERVED
