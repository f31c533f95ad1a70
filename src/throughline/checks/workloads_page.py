"""Generate docs/workloads.md from the workloads, their keys, and what a numerical equivalence check covers.

`python -m throughline.checks.workloads_page` writes it. A test fails if it is out of date.
"""

import ast
import textwrap
from pathlib import Path
from typing import Any

from throughline import workloads
from throughline.checks import equivalence
from throughline.files import write_text
from throughline.frameworks.description import FEATURES
from throughline.frameworks.reference import table
from throughline.numbers import scaled
from throughline.spec import RunSpec
from throughline.study.benchmark import Benchmark
from throughline.study.config import Config
from throughline.study.config_reference import of_workload
from throughline.study.runs import expand
from throughline.workloads import Workload

PAGE = Path(__file__).parents[3] / "docs" / "workloads.md"
BY_FEATURE = {"clipping": "clip"}
"""Map a feature to its option, if the option has another name."""

HEADER = f"""# Workloads

For those who choose what to train: each workload's models, keys, data, figures and equivalence
checks. [frameworks.md](frameworks.md) says which framework has which feature, and
[add-a-workload.md](add-a-workload.md) what a new workload needs. This page is generated from
`src/throughline/workloads/` (`python -m throughline.checks.workloads_page`).

A run of every workload measures throughput, memory, utilization, FLOPs and MFU
([outputs.md](outputs.md)). Some workloads have figures of their own, which stand below.

A benchmark has a
[numerical equivalence check](method-numerical-equivalence.md#the-numerical-equivalence-check) if
it compares frameworks, or if its options change how the model lies on its ranks. The check compares
{equivalence.STEPS} steps in fp32 with a reference in double precision: the relative difference of a loss is at most
{equivalence.TOLERANCE:.0e}. It compares {equivalence.LOWER_STEPS} steps in every other precision with the same
framework in fp32. It can use these optimizers: {", ".join(equivalence.RATE)}.
The row *equivalence check* of each workload names the precisions and options that the check takes
from the measured runs as they are.

| asked most | in short |
|---|---|
| Which models are there? | each section below names its models, and the keys that a benchmark takes |
| Which framework trains them? | the rows *features in ...*; one page has them all ([more](frameworks.md)) |
| Is there a language model of 2026? | any `config.json` of Hugging Face ([more](hugging-face.md)) |
| And without a model? | `micro`, `layers` and `collectives` ([more](micro-benchmarks.md)) |
| Can I add my own? | one folder, a preset and a test ([more](add-a-workload.md)) |
"""


def reference() -> str:
    """Return the page as Markdown, with one section per workload."""
    return HEADER + "".join(map(_section, workloads.FOLDERS))


def _section(folder: str) -> str:
    models = [model for model, of_folder in workloads.models().items() if of_folder == folder]
    specs = [_default(model) for model in models]
    workload = workloads.of(models[0])
    known_facts = workload.facts(None)
    parameters = specs[0].parameters
    units = [f"`{unit}/s` ({count(parameters):g} per sample by default)" for unit, count in workload.units.items()]
    figures = [
        f"{figure.name} ({figure.unit}, {figure.better} is better): {figure.description}" for figure in workload.figures
    ]
    facts = {
        "throughput": ", ".join([f"`{workload.unit}/s`", *units]),
        "data": _data(workload, parameters),
        "figures of its own": "; ".join(figures) or "none",
        "loss": _learns(workload) if workload.trains else "none: it trains nothing",
        **{f"features in {library}": _words(features) for library, features in workload.libraries.items()},
        **{f"not in {library}": reason for library, reason in workload.no_form.items()},
        **{
            f"equivalence check in {library}": workload.no_proof or _proven(features)
            for library, features in workload.libraries.items()
        },
        **{name.replace("_", " "): text for name, text in workload.convention(specs[0]).items()},
    }
    work = [[f"`{spec.model}`", _flops(workload, spec, known_facts)] for spec in specs]
    return (
        f"\n## {folder}\n\n{_docstring(folder, '__init__')}\n{of_workload(Benchmark.of(folder))}\n"
        + table(["", "what"], [[name, text] for name, text in facts.items()])
        + "\nFLOPs of one sample, with the conventions above and the default keys:\n\n"
        + table(["model", "FLOPs per sample"], work)
        + "".join(
            f"\n{_docstring(folder, f'in_{library}', f'`in_{library}.py`: ')}\n" for library in workload.libraries
        )
    )


def _default(model: str) -> RunSpec[Any]:
    """Return the specification of a run of a model with the default keys."""
    return expand(Config.model_validate({"benchmarks": {"any": {"model": model, "options": {"data": "synthetic"}}}}))[0]


def _flops(workload: Workload[Any], spec: RunSpec[Any], facts: dict[str, Any]) -> str:
    flops = workload.flops_per_sample(spec, facts, {})
    return flops if isinstance(flops, str) else scaled(flops)


def _data(workload: Workload[Any], parameters: Any) -> str:
    if workload.data is None:
        return "only synthetic batches"
    folder = f"data/<name>/{workload.folder(parameters)}/"
    return f"`{workload.data}`, from `{folder}`; or synthetic batches (`options.data: synthetic`)"


def _learns(workload: Workload[Any]) -> str:
    if workload.learns_from is None:
        return "losses are not judged"
    return f"a run of {workload.learns_from} timed steps or more on real data is invalid if its loss does not fall"


def _words(features: frozenset[str]) -> str:
    return ", ".join(words for key, words in FEATURES.items() if key in features)


def _proven(features: frozenset[str]) -> str:
    """Return the precisions and options that a check can use as they are measured, with these features."""
    options = [BY_FEATURE.get(key, key) for key in FEATURES if key in features]
    precisions = ["fp32", *(name for name, key in {"fp16": "amp", "bf16": "bf16"}.items() if key in features)]
    named = *equivalence.AS_MEASURED, *equivalence.RARE
    proven = ", ".join(f"`{name}`" for name in options if name in named)
    return f"{', '.join(precisions)}; {proven}"


def _docstring(folder: str, name: str, begin: str = "") -> str:
    """Return the docstring of a workload's file, wrapped to the width of the page.

    The file is parsed and not imported, because its library may not be installed.
    """
    source = (Path(workloads.__file__).parent / folder / f"{name}.py").read_text(encoding="utf-8")
    paragraphs = (begin + (ast.get_docstring(ast.parse(source)) or "")).split("\n\n")
    return "\n\n".join(
        text if text.startswith(" ") else textwrap.fill(text, 98, break_on_hyphens=False) for text in paragraphs
    )


if __name__ == "__main__":
    write_text(PAGE, reference())
