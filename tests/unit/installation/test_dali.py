"""DALI's pins go into the environment that the user names, and move no package that is there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from throughline import recipes
from throughline.files import UserError
from throughline.installation import dali


def test_every_package_is_pinned() -> None:
    lines = [line for line in dali.FILE.read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_the_lock_of_the_framework_holds_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "is_ready", lambda name: True)
    recipe = recipes.of("jax")
    assert recipe is not None
    words, target = dali.command("jax")
    assert target == recipe.folder and words[words.index("--python") + 1] == recipes.python_of(recipe.name)
    assert words[words.index("-c") + 1] == str(recipe.lock) and words[-1] == str(dali.FILE)
    words, _ = dali.command("torch")
    assert Path(words[words.index("-c") + 1]).name == "main.txt"


def refused(framework: str) -> str:
    with pytest.raises(UserError) as caught:
        dali.command(framework)
    return str(caught.value)


def test_what_cannot_be_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no framework tourch" in refused("tourch")
    monkeypatch.setattr(recipes, "is_ready", lambda name: False)
    assert "make frameworks FRAMEWORKS=jax" in refused("jax")
    old: Any = replace(recipes.of("jax"), python="3.8")  # type: ignore[type-var]
    monkeypatch.setattr(recipes, "is_ready", lambda name: True)
    monkeypatch.setattr(recipes, "of", lambda framework: old)
    assert "runs in Python 3.8, and DALI needs 3.10 or newer" in refused("jax")
