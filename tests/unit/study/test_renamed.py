"""A configuration of 0.3 gets an error that says the new name of each key and value, and the page lists them."""

from typing import Any

import pytest

from throughline import sources
from throughline.study import config, renamed

BLOCK = ("benchmarks", "b")
PLACES = {"options": (*BLOCK, "options"), "steps": (*BLOCK, "steps"), "masking": ("corpus", "masking")}
KEYS = [
    (PLACES.get(section, tuple(section.replace("<name>", "b").split("."))), old, new)
    for section, names in renamed.KEYS.items()
    for old, new in names.items()
]
VALUES = [(key, old, new) for key, names in renamed.VALUES.items() for old, new in names.items()]


def loaded(keys: tuple[str, ...], value: Any) -> config.Config:
    """Load a block with a value at these keys. Its model is `matmul` if bert-tiny has no such key."""
    is_matmul = keys[-1] in ("min_seconds", "at_least_s") and "benchmarks" in keys
    model = {"model": "matmul", "batch": {"fp32": [1]}} if is_matmul else {"sequence_length": 32}
    content: dict[str, Any] = {"benchmarks": {"b": {key: v for key, v in model.items() if keys[-1] != "sequence"}}}
    inner = content
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    inner[keys[-1]] = value
    return config.load([], content)


@pytest.mark.parametrize(("section", "old", "new"), KEYS)
def test_an_old_key_is_one_mistake_that_says_the_new_key(section: tuple[str, ...], old: str, new: str) -> None:
    with pytest.raises(config.ConfigError) as caught:
        loaded((*section, old), 1)
    place = ".".join((*section, old))
    assert str(caught.value).splitlines() == [
        "the configuration has one mistake:",
        f"  {place}: since 0.4 this key is {new} (docs/reference/from-0.3-to-0.4.md)",
        "  next: correct it; docs/reference/configuration.md describes every key",
    ]
    with pytest.raises(config.ConfigError) as wrong:  # the new key exists: the value is what is wrong
        loaded((*section, new), "no such value")
    assert f"{'.'.join((*section, new))} = 'no such value'" in str(wrong.value)


def test_a_key_that_is_gone_is_a_mistake_that_says_what_to_use() -> None:
    for section, names in renamed.GONE.items():
        for old, use in names.items():
            with pytest.raises(config.ConfigError) as caught:
                loaded((*filter(None, section.replace("<name>", "b").split(".")), old), 1)
            assert f"{old}: since 0.4 this key is gone; use {use} (docs/reference/from-0" in str(caught.value)


@pytest.mark.parametrize(("key", "old", "new"), VALUES)
def test_an_old_value_is_a_mistake_that_says_the_new_value(key: str, old: Any, new: str) -> None:
    keys = ("benchmarks", "b", key) if key == "extras" else ("benchmarks", "b", "options", key)
    with pytest.raises(config.ConfigError, match=rf"since 0.4 this value is {new} \(docs"):
        loaded(keys, [old] if key == "extras" else old)
    assert loaded(keys, [new] if key == "extras" else new)


def test_the_page_lists_every_old_name_with_the_new_one() -> None:
    page = " ".join((sources.ROOT.parents[1] / "docs/reference/from-0.3-to-0.4.md").read_text(encoding="utf-8").split())
    for names in [*renamed.KEYS.values(), *renamed.VALUES.values()]:
        for old, new in names.items():
            assert f"`{str(old).lower() if isinstance(old, bool) else old}` → `{new}`" in page
    assert all(f"`{old}` → {use}" in page for names in renamed.GONE.values() for old, use in names.items())
