"""A configuration of 0.3 gets an error that says the new name of each key and value, and the page lists them."""

import json
from pathlib import Path
from typing import Any

import pytest

from throughline.study import config, renamed

INSIDE = {
    renamed.BLOCK: ("benchmarks", "b"),
    "options": ("benchmarks", "b", "options"),
    "steps": ("benchmarks", "b", "steps"),
    "accept": ("accept",),
    "goals": ("goals",),
    "masking": ("corpus", "masking"),
}
KEYS = [(section, old, new) for section, names in renamed.KEYS.items() for old, new in names.items()]
VALUES = [(key, old, new) for key, names in renamed.VALUES.items() for old, new in names.items()]
OPTIONAL = {"min_seconds": "matmul"}
"""Map a key to a model that has it, if bert-tiny has not."""


def loaded(path: tuple[str, ...], value: Any, tmp_path: Path) -> config.Config:
    model = OPTIONAL.get(path[-1], "bert-tiny")
    own = {"batch": {"fp32": [1]}} if model == "matmul" else {"sequence_length": 32}
    content: dict[str, Any] = {"benchmarks": {"b": {"model": model, **own}}}
    inner = content
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    if path[-1] == "sequence":
        del inner["sequence_length"]
    inner[path[-1]] = value
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(content))
    return config.load([file])


@pytest.mark.parametrize(("section", "old", "new"), KEYS)
def test_an_old_key_is_one_mistake_that_says_the_new_key(section: str, old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError) as caught:
        loaded((*INSIDE[section], old), 1, tmp_path)
    place = ".".join((*INSIDE[section], old))
    assert str(caught.value).splitlines() == [
        "the configuration has one mistake:",
        f"  {place}: since 0.4 this key is {new} (docs/from-0.3-to-0.4.md)",
        "  next: correct it; docs/configuration.md describes every key",
    ]
    with pytest.raises(config.ConfigError) as wrong:  # the new key exists: the value is what is wrong
        loaded((*INSIDE[section], new), "no such value", tmp_path)
    assert f"{'.'.join((*INSIDE[section], new))} = 'no such value'" in str(wrong.value)


@pytest.mark.parametrize(("key", "old", "new"), VALUES)
def test_an_old_value_is_a_mistake_that_says_the_new_value(key: str, old: Any, new: str, tmp_path: Path) -> None:
    block = ("benchmarks", "b") if key == "extras" else ("benchmarks", "b", "options")
    with pytest.raises(config.ConfigError, match=rf"since 0.4 this value is {new} \(docs"):
        loaded((*block, key), [old] if key == "extras" else old, tmp_path)
    assert loaded((*block, key), [new] if key == "extras" else new, tmp_path)


def test_the_page_is_up_to_date() -> None:
    assert renamed.PAGE.read_text(encoding="utf-8") == renamed.page()
