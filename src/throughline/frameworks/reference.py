"""docs/frameworks.md and README's table of what is supported, generated from the frameworks, workloads and pins.

`python -m throughline.frameworks.reference` writes both; a test fails when one of them is out of date.
"""

import ast
from pathlib import Path

from throughline import frameworks, recipes, workloads
from throughline.files import write_text

ROOT = Path(__file__).parents[1]
PAGE = ROOT.parents[1] / "docs" / "frameworks.md"
README = ROOT.parents[1] / "README.md"
MARKS = "<!-- what is supported: python -m throughline.frameworks.reference -->\n\n", "\n<!-- end -->"
"""Between these README has the table."""

LIBRARIES = (
    "torch", "mxnet", "gluonnlp", "horovod", "jax", "optax", "keras-hub", "paddlepaddle", "tensorflow-cpu",
    "transformers", "accelerate", "numpy",
)  # fmt: skip
"""Packages whose pins the page shows."""

HEADER = """# Frameworks

For those who choose a framework: which ones there are, their versions, and what each can do with
each workload. [add-a-framework.md](add-a-framework.md) says how to build them for GPUs, and what a
new one needs. This page is generated from `src/throughline/frameworks/`,
`src/throughline/workloads/` and `envs/` (`python -m throughline.frameworks.reference`).

## Which frameworks there are

The versions are the pins in `envs/`. The sources are those of the models of BERT, GPT-2 and
ResNet. The features are those with BERT.
"""

ABSENT = """
## Which frameworks are missing, and why

| framework | why it is missing |
| --- | --- |
| TensorFlow 1 | it is dead: its last release is for Python 3.7 at most. `tensorflow` trains with TensorFlow 2 |
| OneFlow | its newest package is for Python 3.10; for Python 3.11 the index has a placeholder without a binary |

The logs of both can be imported, to compare them with your own runs:
[compare.md](compare.md#logs-of-others).

## A limit of Paddle on CPUs

On CPUs Paddle exchanges gradients over gloo. A rank that waits there for another rank for 30 seconds
within a step ends. Paddle has no argument and no variable that changes this limit. Such a run fails,
and its error names `gloo::TimeoutException`. The run has no record, so the next `snakemake` makes it
again. Between steps the ranks meet at Paddle's store, which has no such limit.

## What each can do with each workload

A run can use a feature if the framework has it, and the workload's form in the framework's library
has it as well. A run that needs a missing feature ends as `unsupported` with the reason, and its
cell says n/a. A table leaves out the frameworks that cannot train the workload, and the features
that no framework has with it.
"""


def reference() -> str:
    """The page as Markdown: what each framework offers with each workload, and what it runs in."""
    names = frameworks.NAMES
    environments = map(recipes.of, names)
    facts = [
        ["folder", *(f"`{name.replace('-', '_')}/`" for name in names)],
        ["library", *(frameworks.of(name).library for name in names)],
        ["ranks are started by", *(own.name if (own := frameworks.of(name).starter) else "agents" for name in names)],
        ["environment", *(f"its own, Python {own.python}" if own else "the workflow's" for own in environments)],
    ]
    return "\n".join([HEADER, _overview(), ABSENT, *map(_features, workloads.FOLDERS), table(["", *names], facts)])


def readme() -> str:
    """README with the table as it is now: which framework trains which workload."""
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    _, after = rest.split(MARKS[1])
    rows = []
    for folder in workloads.FOLDERS:
        models = [model for model, own in workloads.models().items() if own == folder]
        cells = ("yes" if frameworks.features(name, models[0]) else "" for name in frameworks.NAMES)
        rows.append([f"[{folder}](docs/workloads.md#{folder})", f"`{models[0]}` ({len(models)})", *cells])
    header = ["workload", "models", *frameworks.NAMES]
    return "".join([before, MARKS[0], table(header, rows), MARKS[1], after])


def _overview() -> str:
    """One row a framework: version, environment, whose models it trains, features."""
    rows = []
    for name in frameworks.NAMES:
        own, library = recipes.of(name), frameworks.of(name).library
        place = f"`envs/{own.framework}.txt`" if own else "the workflow's, `envs/torch.txt`"
        sources = "; ".join(found for folder in ("bert", "gpt2", "resnet") if (found := _source(folder, library)))
        has = frameworks.features(name, "bert-tiny")
        features = ", ".join(key for key in frameworks.FEATURES if key in has)
        rows.append([f"`{name}`", _pins(name), place, sources, features])
    return table(["framework", "version", "environment", "source of its models", "features"], rows)


def _source(folder: str, library: str) -> str:
    """The first paragraph of a form's description; empty where there is no form."""
    path = ROOT / "workloads" / folder / f"in_{library}.py"
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else None
    return " ".join((words or "").split("\n\n")[0].split()).rstrip(".")


def _features(folder: str) -> str:
    """Return the table of a workload: which framework has which feature with it.

    Rows and columns without a "yes" are left out.
    """
    model = next(model for model, own in workloads.models().items() if own == folder)
    offered = {name: has for name in frameworks.NAMES if (has := frameworks.features(name, model))}
    rows = [
        [words, *("yes" if key in has else "no" for has in offered.values())]
        for key, words in frameworks.FEATURES.items()
        if any(key in has for has in offered.values())
    ]
    return table([f"`{folder}`", *offered], rows)


def _pins(name: str) -> str:
    own = recipes.of(name)
    path = recipes.PINS / f"{own.framework if own else name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return ", ".join(line.split()[0].replace("==", " ") for line in lines if line.partition("==")[0] in LIBRARIES)


def table(header: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    write_text(PAGE, reference())
    write_text(README, readme())
