"""The frameworks that train. Each has its own folder; this file finds them and knows what a run needs of one.

The `__init__.py` of a folder describes its framework (`description.py`) and imports only the standard library. It names
the class that trains in a rank (`rank.py`), which has only the mechanics of training: the model belongs to the
workload, whose implementation in the framework's library the class gets. The classes of all frameworks have the same
methods in the same order. This package imports the single files of the lowest layer and the workloads, but no run,
launcher or report. docs/contributing/add-a-framework.md explains everything.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import make_dataclass, replace
from functools import cache
from typing import Any

from throughline import versions, workloads
from throughline.frameworks.description import FEATURES, Framework
from throughline.spec import Options, RunSpec
from throughline.workloads import Unsupported

PROGRAM = Framework(
    rank="",
    library="program",
    packages=(),
    accelerators={
        "cuda": "import json, pynvml as n; n.nvmlInit(); c = n.nvmlDeviceGetCount(); "
        "name = n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(0)) if c else None; "
        "print(json.dumps({'count': c, 'name': name, 'fp16': True}))"
    },
    features=frozenset(FEATURES),
)
"""What the rest of the program has to know about a program of somebody else: that it may do everything."""
NAMES = tuple(sorted(package.name.replace("_", "-") for package in pkgutil.iter_modules(__path__) if package.ispkg))
"""The names of all frameworks. Each has a folder; the folder of `torch-horovod` is `torch_horovod`."""


COMPILES_S = 30.0
"""A compilation takes about so long. A whole measurement that is shorter is eager with `compile: auto`."""
COMPILED_JOB_STEPS = 2000
"""A whole job is timed with its compilation, which pays after about so many steps: if it saves 15 ms in each."""


@cache
def of(name: str) -> Framework:
    """Return the description of a framework, in any version. Any other name is that of a program (`PROGRAM`)."""
    name = versions.base(name)
    if name not in NAMES:
        return PROGRAM
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}").FRAMEWORK  # type: ignore[no-any-return]


@cache
def accelerators() -> tuple[str, ...]:
    """Return the kinds of accelerators that some framework trains on."""
    return tuple(dict.fromkeys(kind for name in NAMES for kind in of(name).accelerators))


@cache
def packages() -> tuple[str, ...]:
    """Return the packages whose versions decide what is measured: those of every framework, and what all ranks use."""
    return tuple(dict.fromkeys(["numpy", "h5py", *(package for name in NAMES for package in of(name).packages)]))


@cache
def options() -> type[Options]:
    """Return the class of a run's options: those of every framework, and after them each framework's own."""
    of_one_framework = dict.fromkeys(framework.options for framework in map(of, NAMES) if framework.options)
    return make_dataclass("Options", [], bases=(*reversed(of_one_framework), Options), frozen=True)


def specification(value: Mapping[str, Any]) -> RunSpec[Any]:
    """Return a run's specification from its JSON values. Raise ValueError if a key is missing or unknown."""
    return RunSpec.of(value, workloads.of(value["model"]).parameters, options())


def features(name: str, model: str) -> frozenset[str]:
    """Return the features of a framework with a model: those that it and the workload's implementation both have."""
    framework, workload = of(name), workloads.of(model)
    if not (framework.calls or workload.trains):
        return frozenset()
    return framework.features & workload.libraries.get(framework.library, frozenset())


def refuse(spec: RunSpec[Any]) -> None:
    """Raise Unsupported if a run needs a feature that the workload's implementation or the framework lacks.

    The implementation is imported only if its reason is needed.
    """
    model, workload, framework = spec.model, workloads.of(spec.model), of(spec.framework)
    if reason := workload.lacks_form(spec, framework.library):
        raise Unsupported(f"{model} has no implementation in {framework.library}: {reason}")
    offered = workload.libraries[framework.library]
    if not (framework.calls or workload.trains):
        raise Unsupported(f"{spec.framework} only trains, and {model} trains nothing: torch measures it")
    if spec.job and not framework.jobs:
        able = ", ".join(name for name in NAMES if of(name).jobs)
        raise Unsupported(f"{spec.framework} trains steps, and no whole jobs: {able} does")
    if spec.options.checkpoint and not (framework.checkpoints and workload.trains):
        able = ", ".join(name for name in NAMES if of(name).checkpoints)
        raise Unsupported(f"{spec.framework} measures no checkpoints of {model}: {able} measures those of models")
    for feature in needs(spec):
        if feature not in offered:
            # The rank comes before the implementation, because it chooses the backend of a library that has several.
            importlib.import_module(f"{__name__}.{framework.rank.partition(':')[0]}")
            lacks = {**workload.lacks, **workloads.form(model, framework.library).lacks}
            raise Unsupported(lacks.get(feature) or f"{model} in {framework.library} has no {FEATURES[feature]}")
        if feature not in framework.features:
            raise Unsupported(framework.reasons.get(feature) or f"{spec.framework} has no {FEATURES[feature]}")


def padding(spec: RunSpec[Any], kind: str) -> tuple[bool, str]:
    """Return whether a run with `remove_padding: auto` leaves padding out on a device of this kind, and the reason."""
    if kind == "cpu":
        return False, "computed: on a CPU, leaving it out gains little"
    if spec.options.cuda_graph == "step":
        return False, "computed: a CUDA graph has one shape"
    if "remove_padding" not in features(spec.framework, spec.model):
        return False, f"computed: {spec.framework} cannot leave it out for {spec.model}"
    return True, "left out: the device is a GPU"


def compiling(spec: RunSpec[Any], kind: str) -> tuple[bool, str]:
    """Return whether a run with `compile: auto` compiles its model on a device of this kind, and the reason."""
    framework = of(spec.framework)
    if framework.compiles:
        return False, f"compiled in any case: {spec.framework} compiles every step"
    if kind == "cpu":
        return False, "not compiled: on a CPU, it gains little"
    if "compile" not in features(spec.framework, spec.model):
        return False, f"not compiled: {spec.framework} cannot compile {spec.model}"
    for feature in needs(spec):
        if feature in framework.not_compiled_with:
            return False, f"not compiled: {framework.not_compiled_with[feature]}"
    if short := ends_soon(spec):
        return False, f"not compiled: {short}"
    return True, "compiled: the device is a GPU, and the run is long enough"


def ends_soon(spec: RunSpec[Any]) -> str | None:
    """Return why a run is over before a compilation pays, or None.

    A window of steps stands for a long training, so only the time counts that the user grants. A job is the whole
    training.
    """
    cap, steps = spec.steps.max_total_seconds, spec.timed.timed
    if spec.job and steps < COMPILED_JOB_STEPS:
        return f"the job has {steps:,} steps, and compiling pays from about {COMPILED_JOB_STEPS:,} on"
    if not spec.job and cap is not None and cap < COMPILES_S:
        return f"all steps may take {cap:g} s, and compiling takes about {COMPILES_S:g} s"
    return None


AUTO = {"padding": ("remove_padding", padding), "compiling": ("compile", compiling)}
"""Map a key of a run's settings to the option that can be `auto`, and to the function that decides it."""


def resolved(spec: RunSpec[Any], kind: str) -> RunSpec[Any]:
    """Return the specification with true or false in the place of each `auto`."""
    given = vars(spec.options)
    chosen: dict[str, Any] = {name: decide(spec, kind)[0] for name, decide in AUTO.values() if given[name] == "auto"}
    return replace(spec, options=replace(spec.options, **chosen)) if chosen else spec


def reasons(spec: RunSpec[Any], kind: str) -> dict[str, str]:
    """Return what a run on a device of this kind does for each `auto`, and why: the words of its settings."""
    given = vars(spec.options)
    return {key: decide(spec, kind)[1] for key, (name, decide) in AUTO.items() if given[name] == "auto"}


def needs(spec: RunSpec[Any]) -> list[str]:
    """Return the features that a run needs."""
    options, topology = spec.options, spec.topology
    needed = {
        "devices": topology.world > 1,
        "nodes": topology.nodes > 1,
        "amp": spec.precision == "fp16",
        "bf16": spec.precision == "bf16",
        "fp8": spec.precision == "fp8",
        "rowwise": spec.options.fp8_scaling == "rowwise",
        "compile": options.compile is True,  # `auto` needs nothing
        "cuda_graph": options.cuda_graph == "step",
        "gradient_accumulation": options.gradient_accumulation > 1,
        "clipping": options.clip != "none",
        "activation_checkpointing": options.activation_checkpointing is True,
        "selective": options.activation_checkpointing == "selective",
        "remove_padding": options.remove_padding is True,  # `auto` needs nothing
        "sharding": options.sharding != "none",
        "hybrid_shard_groups": options.hybrid_shard_groups != 1,
        "reduce_dtype": options.reduce_dtype != "fp32",
        "tensor_parallel": options.tensor_parallel > 1,
        "expert_parallel": options.expert_parallel > 1,
        "own_gradient_sync": topology.world > 1 and workloads.of(spec.model).own_gradient_sync(spec),
    }
    return [feature for feature, is_needed in needed.items() if is_needed]
