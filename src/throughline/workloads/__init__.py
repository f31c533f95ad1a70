"""Workloads: the models that are trained, and the operations that are timed alone.

Each workload is a folder beside this file, which says what a workload offers. The workload's `__init__.py` is its
neutral file: it holds everything that does not belong to a library. It imports only the standard library at its top
(numpy inside functions), because the configuration and old environments load it too. `in_<library>.py` beside it is
the workload's form in a library, such as torch or mxnet. A form in PyTorch names in CHANGING the buffers that training
changes: ranks exchange these, and no other buffer.

A workload may train nothing (`untrained.py`). Then a step is one call of the network that its form builds, without
data, loss, optimizer and exchange of gradients.

To add a workload, it is enough to add a folder: other code finds it with `of` and `form`. Workloads import only basic
modules of Throughline, such as files.py and topology.py, and a form also imports its library. They never import a
framework, a run or a report. docs/add-a-workload.md explains each part.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, cast

from throughline.files import UserError

Arrays = dict[str, Any]
"""numpy arrays by name."""
Values = Mapping[str, Any]

FOLDERS = tuple(sorted(package.name for package in pkgutil.iter_modules(__path__) if package.ispkg))
"""The folders of all workloads."""
MADE_UP = "made-up"
"""A reader of a data room puts this word into its `how` if its data were generated, so that tables say so."""
DEFAULT = "bert-tiny"
"""The model of a block that names no model."""


def key(
    description: str,
    *,
    default: Any = MISSING,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[Any, ...] | None = None,
    asked: bool = True,
    stated: bool = False,
    whole: Any = MISSING,
    unit: str | None = None,
    titled: bool = False,
) -> Any:
    """Make a field of `Parameters`: a key of a benchmark's block in config.yaml, with the values that are allowed.

    `asked=False`: the field is no key of a block; `complete` computes it. `stated`: a specification contains the value
    even if it is the default. `whole`: only for a key that splits the model over ranks; the value with which each rank
    holds the whole model. `unit`: the unit of the number, which tables show. `titled`: titles of tables show the value.
    """
    limits = {"least": least, "most": most, "choices": choices}
    facts = {"asked": asked, "stated": stated, "whole": whole, "unit": unit, "titled": titled}
    return field(default=default, metadata={"description": description, **limits, **facts})


class Described(str):
    """The name of a model that a file describes, with that file and its SHA-256."""

    file: Path
    sha256: str


class Unsupported(Exception):
    """A form or a framework cannot do what a run asks for on this device. The run's record has the reason."""


@dataclass(frozen=True)
class Figure:
    """A figure that every run of a workload measures beside throughput.

    `peak`: the peak of the datasheet, in TFLOPS or GB/s, with which a rate can be compared. `of_steps`: percentiles of
    the times of the timed steps in milliseconds; the launcher computes them from the slowest rank. `of_counts`: the
    value that `counted` returns under this name, as a mean over the ranks; `counts` then also gets made-up batches.
    The form measures all other figures.
    """

    name: str
    unit: str
    better: Literal["more", "less"]
    description: str
    peak: Literal["flops", "memory"] | None = None
    of_steps: tuple[int, ...] = ()
    of_counts: bool = False


LATENCY = Figure(
    "latency", "ms", "less", "one iteration of the slowest rank: median and percentiles", of_steps=(50, 95, 99)
)
"""For workloads whose published tables state a latency."""


class Workload(Protocol):
    """The names that a neutral file defines.

    `parameters` is an instance of its Parameters. `spec` is a run's specification as JSON: `model`, `options` and
    others, with the parameters flat beside them. `facts` is the result of the function of that name.
    """

    MODELS: tuple[str, ...]
    """The values that a block's `model` can have, the default first."""
    Parameters: type
    """A frozen dataclass of `key` fields. They decide a run together with the core keys."""
    UNIT: str
    """The unit of throughput, such as `samples` or `images`."""
    UNITS: Mapping[str, Callable[[Any], float]]
    """Map other units of the same throughput, such as tokens, to a function: parameters -> how many a sample has."""
    FIGURES: tuple[Figure, ...]
    DATA: str | None
    """The section of config.yaml with its data, and the data room whose `reading` reads them. None: all batches are
    made up."""
    LIBRARIES: Mapping[str, frozenset[str]]
    """Map each library to the features (`frameworks.FEATURES`) of the form there."""
    NO_FORM: Mapping[str, str]
    """Map a library to the reason why there is no form in it. Only libraries that somebody has examined."""
    SETTINGS: tuple[str, ...]
    """Names that `settings` of every form states, in addition to those of the framework (`frameworks.SETTINGS`)."""
    LEARNS_FROM: int | None
    """The loss of a run on real data has to fall if it has this many timed steps or more. None: losses say nothing."""
    HELD_OUT: Mapping[str, bool]
    """Map each figure of held-out data, `loss` among them, to True if more is better. Empty without a convergence
    check."""
    NO_PROOF: str | None
    """Why its mathematics cannot be compared with a reference in double precision. None: they can."""

    def complete(self, values: Values, section: Any) -> dict[str, Any]:
        """Return the parameters that are no keys (`asked=False`).

        They follow from a block's model and own keys (`values`) and from the section of the data. Raise a ValueError
        that names the key if the section has no data for these values.
        """

    def splits(self, model: str) -> Mapping[str, int]:
        """Map what ranks that share a replica (`options.tensor`) divide, such as heads, to how many the model has.

        Only called if a form has the feature `tensor`.
        """

    def folder(self, parameters: Any) -> str:
        """Return the folder under data/<name>/ whose manifest these parameters read."""

    def fits(self, parameters: Any, manifest: Values) -> str | None:
        """Return what is wrong with a manifest's data for these parameters, as a sentence without its subject; or
        None."""

    def facts(self, manifest: Values | None) -> dict[str, Any]:
        """Return what a form has to know of the data: from a manifest, or for synthetic batches if it is None."""

    def batch(self, rows: Arrays, options: Values) -> Arrays:
        """Return the arrays that one step needs, from the rows of the data's reader. Arrays stay as they are unless an
        option asks for a change."""

    def synthetic(self, count: int, spec: Values, seed: int) -> Arrays:
        """Return a made-up batch of `count` samples, the same for the same seed."""

    def counts(self, rows: Arrays) -> tuple[int, ...]:
        """Count things in a batch's rows, while they are read. The run adds up the counts over the timed window."""

    def counted(self, sums: tuple[int, ...], samples: int, spec: Values) -> dict[str, float]:
        """Return figures from the sums of `counts` over this many samples, such as `real_token_share`.

        The mean of such a figure over the ranks has to be the figure of all ranks.
        """

    def flops_per_sample(self, spec: Values, facts: Values, counted: Values) -> float | str:
        """Return the FLOPs to train on one sample (multiply-add = 2, model FLOPs), or why they are not known."""

    def convention(self, spec: Values) -> dict[str, str]:
        """Say in words what `flops_per_sample` counts."""

    def look(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the figures of HELD_OUT, from sums over held-out batches."""


@cache
def models() -> dict[str, str]:
    """Map the name of every model to the folder of its workload."""
    return {model: folder for folder in FOLDERS for model in _neutral(folder).MODELS}


def described_by(folder: str) -> Mapping[str, Any]:
    """Return the keys of a map that describes a model of this workload in place of a name, with their JSON schemas.

    They are the workload's DESCRIBED; empty if its models only have names. The first key tells which workload a map
    belongs to, and the model's name begins with it.
    """
    keys: Mapping[str, Any] = getattr(_neutral(folder), "DESCRIBED", {})
    return keys


def folder(model: str | Values) -> str | None:
    """Return the workload's folder of a model, given its name or a map that describes it; None if there is no such
    model."""
    if isinstance(model, str) and model in models():
        return models()[model]
    key = {model.partition(":")[0]} if isinstance(model, str) else model.keys()
    return next((folder for folder in FOLDERS for first in list(described_by(folder))[:1] if first in key), None)


def of_map(values: Values) -> Described:
    """Return the name that the workload gives to the model of a map (`described`); ValueError if it cannot read it."""
    place = folder(values)
    if place is None:
        known = [key for folder in FOLDERS for key in list(described_by(folder))[:1]]
        raise ValueError(f"a model's name is needed, or a map with the key {' or '.join(known)}")
    workload: Any = _neutral(place)
    model: Described = workload.described(values)
    return model


def of(model: str) -> Workload:
    """Return the workload of a model; UserError if there is no such model."""
    place = folder(model)
    if place is None:
        raise UserError(f"there is no model {model!r}", next_step="choose one of " + ", ".join(models()))
    return _neutral(place)


def handed(spec: Values) -> dict[str, Any]:
    """Return a specification plus what ranks get with it: the content of files that a workload reads (`handed`)."""
    return {**spec, **getattr(of(spec["model"]), "handed", lambda spec: {})(spec)}


def trains(model: str) -> bool:
    """True if a step trains the model. A workload whose step is one call of a test has TRAINS = False."""
    return getattr(of(model), "TRAINS", True)


def has_batch(model: str) -> bool:
    """True if a step takes a batch of samples. A workload whose calls have no batch has HAS_BATCH = False."""
    return getattr(of(model), "HAS_BATCH", True)


def rounding(model: str) -> float:
    """How many times the usual rounding a loss in a lower precision may show (ROUNDING)."""
    return float(getattr(of(model), "ROUNDING", 1))


def proven_batch(model: str) -> int:
    """The smallest batch of a replica with which a proof of equal mathematics holds (PROVEN_BATCH)."""
    return int(getattr(of(model), "PROVEN_BATCH", 1))


def own_exchange(spec: Values) -> bool:
    """True if the network exchanges some parameters itself, so the framework leaves them alone.

    A workload with such parameters has a function of this name, and its form has `spread`.
    """
    asked: Callable[[Values], bool] | None = getattr(of(spec["model"]), "own_exchange", None)
    return asked is not None and asked(spec)


def proven(spec: Values) -> dict[str, Any]:
    """Return the parameters that a proof of equal mathematics changes, with their values in the proof.

    They switch off random choices, which no reference can repeat. A workload with such parameters has a function of
    this name.
    """
    changes: Callable[[Values], dict[str, Any]] | None = getattr(of(spec["model"]), "proven", None)
    return changes(spec) if changes else {}


def parameters(spec: Values) -> Any:
    """Return the Parameters of a specification's workload, with the values of the specification."""
    kind = of(spec["model"]).Parameters
    return kind(**{one.name: spec[one.name] for one in fields(kind) if one.name in spec})


def whole(model: str) -> dict[str, Any]:
    """Return the parameters that can split a model over ranks, with the values that leave it whole on each rank."""
    keys = fields(of(model).Parameters)
    return {one.name: one.metadata["whole"] for one in keys if one.metadata["whole"] is not MISSING}


def form(model: str, library: str) -> ModuleType:
    """Import and return the form of a model's workload in a library; UserError if it has no form there."""
    workload = of(model)
    if library not in workload.LIBRARIES:
        raise UserError(f"{model} has no form in {library}", next_step="choose one of " + ", ".join(workload.LIBRARIES))
    return importlib.import_module(f"{__name__}.{folder(model)}.in_{library}")


def _neutral(folder: str) -> Workload:
    return cast(Workload, importlib.import_module(f"{__name__}.{folder}"))
