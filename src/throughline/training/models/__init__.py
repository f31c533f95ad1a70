"""Models: one file each, framework-neutral (shapes, batches, FLOPs), beside its form in each framework."""

from __future__ import annotations

import importlib
from types import ModuleType

from throughline.files import UserError

MODELS = {f"bert-{size}": "bert" for size in ("tiny", "mini", "small", "medium", "base", "large")}
"""A model's name -> its file in this folder; its forms are `<file>_torch` and `<file>_mxnet`."""


def of(name: str, framework: str | None = None) -> ModuleType:
    """The model's module, or its form in a framework (which imports that); UserError where there is no such model."""
    if name not in MODELS:
        raise UserError(f"there is no model {name!r}", next_step="choose one of " + ", ".join(MODELS))
    return importlib.import_module(f"{__name__}.{MODELS[name]}" + (f"_{framework}" if framework else ""))
