"""A framework in another version: its pins, its environment, and what the configuration says about a mistake."""

from pathlib import Path

import pytest

from throughline import frameworks, recipes, versions
from throughline.files import UserError
from throughline.study.config import ConfigError, load


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("envs").mkdir()
    return tmp_path


def written(framework: str, *lines: str) -> None:
    Path("envs", f"{framework}.txt").write_text("\n".join(["# the version before", *lines, ""]))


def test_a_version_is_its_framework_with_other_pins() -> None:
    written("jax@old", "jax==0.9.2", "jaxlib==0.9.2  # they go together", "chex==0.1.90")
    assert frameworks.of("jax@old") is frameworks.of("jax")
    now, old = recipes.of("jax", "none"), recipes.of("jax@old", "none")
    assert now and old
    lines, earlier = now.stages[0].requirements, old.stages[0].requirements
    assert {*earlier} - {*lines} == {"jax==0.9.2", "jaxlib==0.9.2", "chex==0.1.90"}
    assert len(earlier) == len(lines) + 1
    assert old.python == now.python and old.modules == now.modules
    assert old.name.startswith("jax@old-") and old.name != now.name
    assert not old.lock.exists() and "jax@old" not in recipes.locked()
    written("jax@old", "jax==0.9.1")
    other, for_gpus = recipes.of("jax@old", "none"), recipes.of("jax@old", "cuda13")
    assert other and other.name != old.name and for_gpus
    assert [line for line in for_gpus.stages[0].requirements if line.startswith("jax[")] == ["jax[cuda13]==0.9.1"]


def test_a_version_of_the_workflows_own_framework_has_an_environment_of_its_own() -> None:
    written("torch@2.12", "torch==2.12.0")
    recipe = recipes.of("torch@2.12", "none")
    assert recipes.of("torch", "none") is None
    assert recipe and recipe.has_torch
    assert "torch==2.12.0" in recipe.stages[0].requirements
    assert recipe.modules == ["torch", "numpy", "h5py"]
    assert any(line.startswith("numpy==") for line in recipe.stages[0].requirements)


def test_a_mistake_says_what_to_write() -> None:
    Path("config.yaml").write_text("benchmarks: {b: {model: bert-tiny, frameworks: [jax, jax@new, jxa@old]}}")
    with pytest.raises(ConfigError) as error:
        load(["config.yaml"])
    assert "there is no file envs/jax@new.txt" in str(error.value) and "jax==VERSION" in str(error.value)
    assert "'jxa@old'" in str(error.value)
    with pytest.raises(UserError, match="conda's file has jax in one version only"):
        versions.not_with_conda("jax@old")
