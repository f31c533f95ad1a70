"""DALI's pins go into the environment that the user names, and move no package that is there."""

import re
from pathlib import Path

import pytest

from throughline.commands import dali
from throughline.files import UserError
from throughline.installation import choose, recipe


def test_the_lock_of_the_framework_holds_its_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, message in (("tourch", "there is no framework tourch"), ("jax", "make frameworks FRAMEWORKS=jax")):
        with pytest.raises(UserError, match=message):
            dali.command(name)
    jax = choose.environment("jax")
    assert jax is not None
    jax.folder.mkdir(parents=True)
    (jax.folder / recipe.READY).touch()
    words, target = dali.command("jax")
    assert target == jax.folder and words[words.index("--python") + 1] == recipe.python_of(jax.name)
    pins = recipe.lines(Path(words[-1]))
    assert words[words.index("-c") + 1] == str(jax.lock) and all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    monkeypatch.setattr(choose, "torch_cuda", lambda: "13.0")
    words, _ = dali.command("torch")
    assert Path(words[words.index("-c") + 1]).name == "main.txt" and "nvidia-dali-cuda130==2.4.0" in pins
    assert Path(words[-1]).name == "dali.txt"


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_an_environment_for_cuda_12_gets_dali_for_cuda_12(
    framework: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A V100 has no build for CUDA 13. The two files pin the same DALI."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(choose.WANTED, "cuda12")
    monkeypatch.setattr(choose, "torch_cuda", lambda: "12.6")
    if environment := choose.environment(framework):
        environment.folder.mkdir(parents=True)
        (environment.folder / recipe.READY).touch()
    pins = recipe.lines(Path(dali.command(framework)[0][-1]))
    assert "nvidia-dali-cuda120==2.4.0" in pins and len(pins) == len(recipe.lines(recipe.PINS / "dali.txt"))
