"""A framework in another version: its pins, its environment, and what the configuration says about a mistake."""

from pathlib import Path

import pytest

from throughline import frameworks
from throughline.installation import recipe
from throughline.study.config import ConfigError, load


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("envs").mkdir()
    return tmp_path


def written(framework: str, *lines: str) -> recipe.Recipe:
    Path("envs", f"{framework}.txt").write_text("\n".join(["# the version before", *lines, ""]))
    return recipe.read(framework)


def test_a_version_is_its_framework_with_other_pins() -> None:
    now, old = recipe.read("jax"), written("jax@old", "jax==0.9.2", "jaxlib==0.9.2  # both", "chex==0.1.90")
    assert frameworks.of("jax@old") is frameworks.of("jax")
    assert {*old.requirements} - {*now.requirements} == {"jax==0.9.2", "jaxlib==0.9.2", "chex==0.1.90"}
    assert len(old.requirements) == len(now.requirements) + 1
    assert old.python == now.python and old.check == now.check
    assert old.name.startswith("jax@old-") and old.name != now.name
    assert old.lock is None and "jax@old" not in recipe.locks()
    other = written("jax@old", "jax==0.9.1")
    for_gpus = other.for_gpus(other.builds[0])
    assert other.name != old.name
    assert [line for line in for_gpus.requirements if line.startswith("jax[")] == ["jax[cuda13]==0.9.1"]


def test_a_version_of_the_workflows_own_framework_has_an_environment_of_its_own() -> None:
    old = written("torch@2.12", "torch==2.12.0")
    assert not recipe.read("torch").python
    assert old.python and old.torch == "torch==2.12.0" and old.check == ["torch", "numpy", "h5py"]
    assert any(line.startswith("numpy==") for line in old.requirements)


def test_a_mistake_says_what_to_write() -> None:
    Path("config.yaml").write_text("benchmarks: {b: {model: bert-tiny, frameworks: [jax, jax@new, jxa@old]}}")
    with pytest.raises(ConfigError) as error:
        load(["config.yaml"])
    assert "there is no file envs/jax@new.txt" in str(error.value) and "jax==VERSION" in str(error.value)
    assert "'jxa@old'" in str(error.value)
