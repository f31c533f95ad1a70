"""Generate docs/reference/workloads.md from the workloads and their keys.

`python -m throughline.checks.workloads_page` writes it. A test fails if it is out of date.
"""

import ast
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any

from throughline import frameworks, workloads
from throughline.files import write_text
from throughline.numbers import scaled
from throughline.spec import RunSpec
from throughline.study.benchmark import Benchmark
from throughline.study.config import Config
from throughline.study.config_reference import of_workload
from throughline.study.runs import expand
from throughline.workloads import Workload

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "workloads.md"
COUNTED = {"flops": "How FLOPs count", "bandwidth": "How bandwidth counts", "bytes": "Bytes"}
"""Map the conventions of a workload that the page has to their names. A record has all of them (`work.convention`)."""
LATENCY = "latency"
"""The figure that every workload has that trains."""

HEADER = """# Workloads

What can be trained, with which keys of a benchmark. [frameworks](frameworks.md) says which
framework has which feature of a workload, [hugging-face](../how-to/hugging-face.md) how any
`config.json` is trained, and [add-a-workload](../contributing/add-a-workload.md) how to add your
own. Behind a model stand the FLOPs of a sample with the default keys. `options.data: synthetic`
needs no data. This page is generated (`python -m throughline.checks.workloads_page`).
"""


def reference() -> str:
    """Return the page as Markdown, with one section per workload."""
    return HEADER + "".join(map(_section, workloads.FOLDERS))


def _section(folder: str) -> str:
    models = [model for model, of_folder in workloads.models().items() if of_folder == folder]
    specs = [_default(model) for model in models]
    workload = workloads.of(models[0])
    parameters = specs[0].parameters
    units = [f"`{unit}/s` ({count(parameters):g} per sample by default)" for unit, count in workload.units.items()]
    own = [figure for figure in workload.figures if figure.name != LATENCY]
    figures = [f"{figure.name} ({figure.unit}): {figure.description}" for figure in own]
    convention = workload.convention(specs[0])
    facts = {
        "Models": _work(workload, specs),
        "Frameworks": ", ".join(f"`{name}`" for name in frameworks.NAMES if _trains(name, workload)),
        "Throughput": ", ".join([f"`{workload.unit}/s`", *units]),
        **({"Data": f"`data/<name>/{workload.folder(parameters)}/`"} if workload.data else {}),
        **({"Figures of its own": "; ".join(figures)} if figures else {}),
        **({"Figures of held-out data": ", ".join(map("`{}`".format, workload.held_out))} if workload.held_out else {}),
        **{words: convention[name] for name, words in COUNTED.items() if name in convention},
    }
    lines = "".join(f"* {name}: {text}\n" for name, text in facts.items())
    return f"\n## {folder}\n\n{_docstring(folder)}\n\n{lines}\nKeys:\n\n{of_workload(Benchmark.of(folder))}"


def _trains(framework: str, workload: Workload[Any]) -> bool:
    """True if a framework has the workload. Only `torch` measures a workload that trains nothing."""
    known = frameworks.of(framework)
    return known.library in workload.libraries and (workload.trains or known.calls)


def _work(workload: Workload[Any], specs: list[RunSpec[Any]]) -> str:
    """Return the models, each with the FLOPs of a sample with the default keys, or with why there are none."""
    facts = workload.facts(None)
    counted = {spec.model: _flops(workload, spec, facts) for spec in specs}
    if len(set(counted.values())) == 1 and len(counted) > 1:
        return f"{', '.join(f'`{model}`' for model in counted)}: {next(iter(counted.values()))}"
    return ", ".join(f"`{model}` {flops}" for model, flops in counted.items())


def _default(model: str) -> RunSpec[Any]:
    """Return the specification of a run of a model with the default keys."""
    return expand(Config.model_validate({"benchmarks": {"any": {"model": model, "options": {"data": "synthetic"}}}}))[0]


def _flops(workload: Workload[Any], spec: RunSpec[Any], facts: dict[str, Any]) -> str:
    flops = workload.flops_per_sample(spec, facts, {})
    return flops if isinstance(flops, str) else scaled(flops)


def _docstring(folder: str) -> str:
    """Return a workload's docstring up to its first formula, wrapped to the width of the page.

    The file is parsed and not imported, because its library may not be installed.
    """
    source = (Path(workloads.__file__).parent / folder / "__init__.py").read_text(encoding="utf-8")
    first, *others = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    plain = itertools.takewhile(lambda text: not text.startswith(" ") and not text.endswith(":"), others)
    about = re.sub(r"[,;]\s+framework-neutral: .*", ".", first, flags=re.DOTALL)
    return "\n\n".join(textwrap.fill(text, 98, break_on_hyphens=False) for text in (about, *[*plain][:1]))


if __name__ == "__main__":
    write_text(PAGE, reference())
