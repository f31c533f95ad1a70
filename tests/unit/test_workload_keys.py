"""A workload's parameters become keys of a block, and go into a specification and back."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from throughline import workloads
from throughline.study import benchmark, config_reference, runs
from throughline.study.benchmark import Benchmark
from throughline.study.config import ConfigError, load
from throughline.study.runs import RunSpec


@dataclass(frozen=True)
class Parameters:
    image: int = workloads.key("pixels a side", default=32, least=8, most=512, stated=True)
    crop: bool = workloads.key("cut a random piece", default=True)
    pool: str = workloads.key("how pixels are pooled", default="max", choices=("max", "mean"))
    kinds: int = workloads.key("what a model tells apart", default=10, asked=False)


def made_up(folder: str, parameters: type, **changes: Any) -> Any:
    facts = {
        "MODELS": (f"{folder}-small",),
        "Parameters": parameters,
        "DATA": None,
        "HELD_OUT": {},
        "complete": lambda values, section: {},
    }
    return types.SimpleNamespace(**{**facts, **changes})


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a workload with images and without data of its own."""
    neutral = workloads._neutral
    mine = made_up("patches", Parameters)
    monkeypatch.setattr(workloads, "FOLDERS", (*workloads.FOLDERS, "patches"))
    monkeypatch.setattr(workloads, "_neutral", lambda folder: mine if folder == "patches" else neutral(folder))
    workloads.models.cache_clear()
    yield
    workloads.models.cache_clear()


def specs(**block: Any) -> list[RunSpec]:
    return runs.expand(load([], {"benchmarks": {"b": {"model": "patches-small", **block}}}))


def test_parameters_are_keys_and_stand_flat_in_the_specification(patches: None) -> None:
    (spec, *_) = specs(image=64, crop=False)
    assert spec.parameters == {"image": 64, "crop": False, "pool": "max", "kinds": 10}
    plain = json.loads(spec.canonical)
    assert (plain["image"], plain["crop"]) == (64, False)
    assert not {"parameters", "pool", "kinds", "corpus"} & set(plain)
    assert list(json.loads(spec.model_dump_json()))[2:8] == ["model", *spec.parameters, "batch_per_device"]
    assert RunSpec.model_validate_json(spec.canonical) == spec == RunSpec.model_validate_json(spec.model_dump_json())
    assert spec.typed_parameters == Parameters(image=64, crop=False)


def test_a_stated_parameter_is_named_even_where_it_is_the_default(patches: None) -> None:
    assert json.loads(specs()[0].canonical)["image"] == 32


def test_a_workload_without_data_makes_up_its_batches(patches: None) -> None:
    (spec, *_) = specs()
    assert (spec.corpus, spec.manifest, spec.options.data) == (None, None, "synthetic")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"image": 4}, "benchmarks.b.image = 4: it has to be greater than or equal to 8"),
        ({"image": "large"}, "benchmarks.b.image = 'large': a whole number is needed"),
        ({"crop": "on"}, "benchmarks.b.crop = 'on': allowed: true, false; did you mean true?"),
        ({"pool": "mux"}, "benchmarks.b.pool = 'mux': allowed: max, mean; did you mean max?"),
        ({"kinds": 3}, "benchmarks.b.kinds: unknown key; allowed: "),
        ({"imag": 64}, "did you mean image?"),
        (
            {"sequence": 32},
            "benchmarks.b.sequence: a key of bert, gpt2, hugging_face and layers models; "
            "patches models take: image, crop, pool",
        ),
        (
            {"model": "bert-tiny", "image": 64},
            "b.image: a key of resnet and patches models; bert models take: sequence",
        ),
        ({"convergence": {}}, "benchmarks.b.convergence: patches-small has no figures of held-out data"),
    ],
)
def test_a_mistake_in_them_is_named_like_any_other(patches: None, block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        specs(**block)
    assert message in str(caught.value)


def test_a_configuration_comes_back_from_its_json(patches: None) -> None:
    config = load([], {"benchmarks": {"b": {"model": "patches-small", "image": 64}}})
    assert json.loads(config.model_dump_json())["benchmarks"]["b"]["image"] == 64
    assert runs.unpacked(runs.packed(config), "b__aa")["benchmarks"]["b"]["image"] == 64  # type: ignore[index]


def test_the_page_and_the_schema_show_every_workloads_keys(patches: None) -> None:
    page, schema = config_reference.reference(), json.loads(config_reference.schema())
    assert "| `benchmarks.<name>.pool` | how pixels are pooled | max or mean | `max` |" in page
    assert "benchmarks.<name>.kinds" not in page
    every = [(kind["properties"]["model"], kind) for kind in schema["$defs"]["Benchmark"]["anyOf"]]
    kinds = {tuple(model["enum"]): kind for model, kind in every if "enum" in model}
    assert [model["required"] for model, _ in every if "enum" not in model] == [["transformers", "task"]]
    assert {"image", "crop", "pool"} < set(kinds[("patches-small",)]["properties"])
    assert "sequence" not in kinds[("patches-small",)]["properties"]


def test_core_names_are_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Wrong:
        batch: int = workloads.key("a name that every block has", default=1)

    monkeypatch.setattr(workloads, "models", lambda: {"wrong-small": "wrong"})
    monkeypatch.setattr(workloads, "_neutral", lambda folder: made_up("wrong", Wrong))
    with pytest.raises(TypeError, match="fields with names of core keys: batch"):
        Benchmark.of("wrong")
    assert set(RunSpec.model_fields) <= benchmark.RESERVED


def test_a_specification_that_lacks_a_stated_parameter_is_no_specification(patches: None) -> None:
    with pytest.raises(ValueError, match="missing: image"):
        RunSpec.model_validate_json(specs()[0].canonical.replace('"image":32,', ""))
