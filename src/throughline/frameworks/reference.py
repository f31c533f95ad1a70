"""docs/frameworks.md, generated from the frameworks, the workloads and the pins in envs/.

`python -m throughline.frameworks.reference` writes it; a test fails when it is out of date.
"""

from pathlib import Path

from throughline import frameworks, recipes, workloads
from throughline.files import write_text

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"

HEADER = """# Frameworks

This page is generated from `src/throughline/frameworks/`, `src/throughline/workloads/` and `envs/`
(`python -m throughline.frameworks.reference`). [add-a-framework.md](add-a-framework.md) says what a new one needs, and
how to build these for GPUs.

A run can use a feature if the framework and the workload's form in the framework's library both have it. A run that
needs a feature that is missing ends as `unsupported` with the reason, and its cell says n/a.
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
        ["main pins", *(_pins(name) for name in names)],
    ]
    return "\n".join([HEADER, *map(_features, workloads.FOLDERS), table(["", *names], facts)])


def _features(folder: str) -> str:
    """A workload's table: for every feature, which frameworks have it with this workload."""
    model = next(model for model, own in workloads.models().items() if own == folder)
    offered = [frameworks.features(name, model) for name in frameworks.NAMES]
    rows = [[words, *("yes" if key in one else "no" for one in offered)] for key, words in frameworks.FEATURES.items()]
    return table([f"`{folder}`", *frameworks.NAMES], rows)


def _pins(name: str) -> str:
    own = recipes.of(name)
    path = recipes.PINS / f"{own.framework if own else name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    libraries = (
        *("torch", "mxnet", "gluonnlp", "horovod", "paddlepaddle", "transformers", "accelerate", "numpy"),
        *("jax", "optax", "tensorflow-cpu", "keras-hub"),
    )
    return ", ".join(line.split()[0].replace("==", " ") for line in lines if line.partition("==")[0] in libraries)


def table(header: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    write_text(PAGE, reference())
