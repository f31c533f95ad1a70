"""Workloads: the models that are trained, and the operations that are timed alone.

A workload is a folder beside this file. Its `__init__.py` is neutral: WORKLOAD, an instance of a subclass of `Workload`
(`workload.py`), has everything that does not belong to a library. The file imports only the standard library at its top
(numpy inside functions), because the configuration and old environments load it too. `in_<library>.py` implements the
workload in a library: FORM is an instance of a subclass of `Form` (`form.py`).

Workloads import basic modules of Throughline, such as files.py and spec/, and their library, but no framework, run or
report. docs/contributing/add-a-workload.md explains each part.
"""

import importlib
import pkgutil
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, cast

from throughline.files import UserError
from throughline.spec import Part, RunSpec, key
from throughline.spec.program import DECIDES
from throughline.workloads.form import Form
from throughline.workloads.workload import LATENCY, Arrays, Figure, Memory, Values, Workload

__all__ = [
    "DEFAULT", "FOLDERS", "LATENCY", "Arrays", "Described", "Figure", "Form", "Part", "Unsupported",
    "Values", "Workload", "folder", "form", "key", "models", "of", "of_folder", "of_map", "whole",
]  # fmt: skip

FOLDERS = tuple(sorted(package.name for package in pkgutil.iter_modules(__path__) if package.ispkg))
"""The folders of all workloads."""
DEFAULT = "bert-tiny"
"""The model of a block that names no model."""


class Described(str):
    """The name of a model that a file describes, with that file and its SHA-256."""

    file: Path
    sha256: str


class Unsupported(Exception):
    """An implementation or a framework cannot do what a run asks for on this device. The record has the reason."""


@cache
def models() -> dict[str, str]:
    """Map the name of every model to the folder of its workload."""
    return {model: folder for folder in FOLDERS for model in of_folder(folder).models}


def of_folder(folder: str) -> Workload[Any]:
    """Return the workload of a folder."""
    return cast("Workload[Any]", importlib.import_module(f"{__name__}.{folder}").WORKLOAD)


def folder(model: str | Values) -> str | None:
    """Return the workload's folder of a model, given its name or a map that describes it; None if there is no such
    model."""
    if isinstance(model, str) and model in models():
        return models()[model]
    if model == DECIDES:
        return DECIDES
    keys = {model.partition(":")[0]} if isinstance(model, str) else model.keys()
    return next((home for home in FOLDERS for first in list(of_folder(home).described)[:1] if first in keys), None)


def trains(model: str) -> bool:
    """False for the models of a workload that makes single calls only. Models of imported logs train."""
    return folder(model) is None or of(model).trains


def of_map(values: Values) -> Described:
    """Return the name that the workload gives to the model of a map; ValueError if it cannot read it."""
    home = folder(values)
    if home is None:
        keys = [key for folder in FOLDERS for key in list(of_folder(folder).described)[:1]]
        raise ValueError(f"a model's name is needed, or a map with the key {' or '.join(keys)}")
    return cast(Described, of_folder(home).of_map(values))


def of(model: str) -> Workload[Any]:
    """Return the workload of a model; UserError if there is no such model."""
    home = folder(model)
    if home is None:
        raise UserError(f"there is no model {model!r}", next_step="choose one of " + ", ".join(models()))
    return of_folder(home)


def unit(spec: RunSpec[Any]) -> str:
    """Return what a step of a run counts, in the plural: `samples`, `images`, `tokens`."""
    return spec.program.unit if spec.program else of(spec.model).unit


def predicted_memory(spec: RunSpec[Any], gpu: bool) -> Memory | None:
    """Return the memory that each rank is predicted to need; None without a prediction, or if the run cannot be."""
    if spec.program:
        return None
    try:
        return of(spec.model).memory(spec, gpu)
    except (UserError, KeyError):  # the run itself says what is wrong
        return None


def whole(model: str) -> dict[str, Any]:
    """Return the parameters that can split a model over ranks, with the values that leave it whole on each rank."""
    keys = fields(of(model).parameters)
    return {declared.name: declared.metadata["whole"] for declared in keys if declared.metadata["whole"] is not MISSING}


def form(model: str, library: str) -> Form[Any, Any]:
    """Import and return the implementation of a model's workload in a library; UserError if it has none there."""
    workload = of(model)
    if library not in workload.libraries:
        raise UserError(
            f"{model} has no implementation in {library}", next_step=f"choose one of {', '.join(workload.libraries)}"
        )
    return cast("Form[Any, Any]", importlib.import_module(f"{__name__}.{folder(model)}.in_{library}").FORM)
