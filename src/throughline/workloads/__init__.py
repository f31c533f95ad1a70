"""Workloads: what is trained, or timed alone. This page says what a workload offers; each is a folder beside it.

A workload's neutral file, its `__init__.py`, holds everything that is not of a framework. It imports the standard
library alone at its top (numpy inside functions): the configuration and old environments load it too.
`in_<library>.py` beside it is its form in a library (torch, mxnet). A form in PyTorch names in CHANGING which buffers
training changes: ranks exchange these, and no other.

A workload may train nothing (`untrained.py`): then a step is one call of what its form builds, without data, loss,
optimizer and exchange of gradients.

Adding a folder is enough: whoever needs a workload asks `of` and `form`. Files in here know the ground, and a form
knows its library; none knows a framework, a run or a report. docs/add-a-workload.md goes through all of it.
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
"""numpy arrays by their names."""
Values = Mapping[str, Any]

FOLDERS = tuple(sorted(package.name for package in pkgutil.iter_modules(__path__) if package.ispkg))
"""The workloads there are, by their folders."""
MADE_UP = "made-up"
"""A word in `how` of a data room's reader where no person has made what it reads: tables then say so."""
DEFAULT = "bert-tiny"
"""The model of a block that names none."""


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
    """A field of `Parameters`: a key of a benchmark's block in config.yaml, with what is allowed.

    `asked` off: no key of a block, it follows from the data's section (`complete`). `stated`: a specification names
    it even where it has its default. `whole`, of a key that splits the model over ranks: the value with which each
    rank holds all of it. `unit`: of its number, where it has one; tables name it. `titled`: titles of tables name it.
    """
    limits = {"least": least, "most": most, "choices": choices}
    facts = {"asked": asked, "stated": stated, "whole": whole, "unit": unit, "titled": titled}
    return field(default=default, metadata={"description": description, **limits, **facts})


class Described(str):
    """The name of a model that a file describes, with the file and its SHA-256."""

    file: Path
    sha256: str


class Unsupported(Exception):
    """What a form or a framework cannot do on this device: the run's record says so."""


@dataclass(frozen=True)
class Figure:
    """A figure beside throughput that every run of a workload measures.

    `peak`: the peak of the datasheet that a rate can be held against, in TFLOPS or GB/s. `of_steps`: percentiles of the
    timed steps' milliseconds, which the launcher takes from the slowest rank. `of_counts`: what `counted` says under
    this name, the mean over the ranks; `counts` then takes made-up batches as well. A form measures all others.
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
"""Of workloads whose published tables state it."""


class Workload(Protocol):
    """What a neutral file offers.

    `parameters` is an instance of its Parameters. `spec` is a run's specification as JSON: `model`, `options` and
    others, with the parameters flat beside them. `facts` is what the function of that name gives.
    """

    MODELS: tuple[str, ...]
    """Names for a block's `model`, the default first."""
    Parameters: type
    """A frozen dataclass of `key` fields: what decides a run beside the core keys."""
    UNIT: str
    """What a sample is called in throughput: `samples`, `images`."""
    UNITS: Mapping[str, Callable[[Any], float]]
    """Other units of the same throughput, such as tokens -> how many a sample has, from the parameters."""
    FIGURES: tuple[Figure, ...]
    DATA: str | None
    """The section of config.yaml with its data, and the room whose `reading` reads them; None: batches are made up."""
    LIBRARIES: Mapping[str, frozenset[str]]
    """Library -> the features (`frameworks.FEATURES`) that its form there has."""
    NO_FORM: Mapping[str, str]
    """Library -> why it has no form there, where somebody has looked for one."""
    SETTINGS: tuple[str, ...]
    """What `settings` of every form states as built, beside those of the framework (`frameworks.SETTINGS`)."""
    LEARNS_FROM: int | None
    """Timed steps on real data from which on the loss has to fall; None where losses say nothing."""
    HELD_OUT: Mapping[str, bool]
    """Figures of held-out data, `loss` among them -> whether more is better; empty without a convergence check."""
    NO_PROOF: str | None
    """Why its mathematics cannot be held against a reference in double precision; None where they can."""

    def complete(self, values: Values, section: Any) -> dict[str, Any]:
        """The parameters that follow from a block's model and own keys (`values`) and the data's section.
        ValueError, which names the key, where that has no data for them."""

    def splits(self, model: str) -> Mapping[str, int]:
        """What the ranks that share a replica (`options.tensor`) divide among themselves -> how many a model has of it.
        Asked where a form has the feature `tensor`."""

    def folder(self, parameters: Any) -> str:
        """Where under data/<name>/ the manifest lies that these parameters read."""

    def fits(self, parameters: Any, manifest: Values) -> str | None:
        """What is wrong with a manifest's data for these parameters, as a sentence without its subject; or None."""

    def facts(self, manifest: Values | None) -> dict[str, Any]:
        """What a form has to know of the data, from a manifest or, without one, for synthetic batches."""

    def batch(self, rows: Arrays, options: Values) -> Arrays:
        """What one step needs, from the rows that the data's reader gives; what no option asks for stays as it is."""

    def synthetic(self, count: int, spec: Values, seed: int) -> Arrays:
        """One made-up batch of `count` samples, the same for the same seed."""

    def counts(self, rows: Arrays) -> tuple[int, ...]:
        """What is counted of a batch's rows while they are read, and summed over the timed window."""

    def counted(self, sums: tuple[int, ...], samples: int, spec: Values) -> dict[str, float]:
        """What these sums say of so many samples, such as `real_token_share`: a mean over the ranks has to be one."""

    def flops_per_sample(self, spec: Values, facts: Values, counted: Values) -> float | str:
        """FLOPs to train on one sample (multiply-add = 2, model FLOPs), or why they are not known."""

    def convention(self, spec: Values) -> dict[str, str]:
        """What `flops_per_sample` counts, in words."""

    def look(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The figures of HELD_OUT, from sums over held-out batches."""


@cache
def models() -> dict[str, str]:
    """Every model's name -> its workload's folder."""
    return {model: folder for folder in FOLDERS for model in _neutral(folder).MODELS}


def described_by(folder: str) -> Mapping[str, Any]:
    """The keys of a map that describes a model of this workload in place of a name (its DESCRIBED), with their JSON
    schemas; none where models have names alone. The first one tells such a map, and begins the model's name."""
    keys: Mapping[str, Any] = getattr(_neutral(folder), "DESCRIBED", {})
    return keys


def folder(model: str | Values) -> str | None:
    """The workload of a model, by its name or by a map that describes it; None where there is no such model."""
    if isinstance(model, str) and model in models():
        return models()[model]
    key = {model.partition(":")[0]} if isinstance(model, str) else model.keys()
    return next((folder for folder in FOLDERS for first in list(described_by(folder))[:1] if first in key), None)


def of_map(values: Values) -> Described:
    """The name of the model that a map describes, as its workload makes it (`described`); ValueError where that cannot
    be read."""
    place = folder(values)
    if place is None:
        known = [key for folder in FOLDERS for key in list(described_by(folder))[:1]]
        raise ValueError(f"a model's name is needed, or a map with the key {' or '.join(known)}")
    workload: Any = _neutral(place)
    model: Described = workload.described(values)
    return model


def of(model: str) -> Workload:
    """The workload of a model; UserError where there is no such model."""
    place = folder(model)
    if place is None:
        raise UserError(f"there is no model {model!r}", next_step="choose one of " + ", ".join(models()))
    return _neutral(place)


def handed(spec: Values) -> dict[str, Any]:
    """A specification with what ranks are told beside it: what a workload reads from files that it names (`handed`)."""
    return {**spec, **getattr(of(spec["model"]), "handed", lambda spec: {})(spec)}


def trains(model: str) -> bool:
    """Whether a step trains the model; a workload whose step is one call of a test says TRAINS = False."""
    return getattr(of(model), "TRAINS", True)


def has_batch(model: str) -> bool:
    """Whether a step takes samples side by side; a workload whose calls have no batch says HAS_BATCH = False."""
    return getattr(of(model), "HAS_BATCH", True)


def rounding(model: str) -> float:
    """How many times the rounding that is usual a loss in a lower precision may show (ROUNDING)."""
    return float(getattr(of(model), "ROUNDING", 1))


def proven_batch(model: str) -> int:
    """The fewest samples of a replica with which a proof of equal mathematics holds (PROVEN_BATCH)."""
    return int(getattr(of(model), "PROVEN_BATCH", 1))


def own_exchange(spec: Values) -> bool:
    """Whether the form's ranks exchange some of the parameters themselves; such a workload has a function of this
    name, and its form `spread`."""
    asked: Callable[[Values], bool] | None = getattr(of(spec["model"]), "own_exchange", None)
    return asked is not None and asked(spec)


def proven(spec: Values) -> dict[str, Any]:
    """The parameters that a proof of equal mathematics changes, with the values that it gives them: what is drawn at
    random cannot be held against a reference. A workload that has such says so with a function of this name."""
    changes: Callable[[Values], dict[str, Any]] | None = getattr(of(spec["model"]), "proven", None)
    return changes(spec) if changes else {}


def parameters(spec: Values) -> Any:
    """The Parameters of the specification's workload, from its values."""
    kind = of(spec["model"]).Parameters
    return kind(**{one.name: spec[one.name] for one in fields(kind) if one.name in spec})


def whole(model: str) -> dict[str, Any]:
    """The parameters that split a model over ranks, with the values at which each rank holds all of it."""
    keys = fields(of(model).Parameters)
    return {one.name: one.metadata["whole"] for one in keys if one.metadata["whole"] is not MISSING}


def form(model: str, library: str) -> ModuleType:
    """A model's workload in a library, which this imports; UserError where it has no form there."""
    workload = of(model)
    if library not in workload.LIBRARIES:
        raise UserError(f"{model} has no form in {library}", next_step="choose one of " + ", ".join(workload.LIBRARIES))
    return importlib.import_module(f"{__name__}.{folder(model)}.in_{library}")


def _neutral(folder: str) -> Workload:
    return cast(Workload, importlib.import_module(f"{__name__}.{folder}"))
