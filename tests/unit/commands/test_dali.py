"""DALI's pins go into the environment that the user names, and move no package that is there."""

from __future__ import annotations

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
    words, _ = dali.command("torch")
    assert Path(words[words.index("-c") + 1]).name == "main.txt" and "nvidia-dali-cuda130==2.4.0" in pins
