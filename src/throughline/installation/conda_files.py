"""The files of conda for the workflow (`main`) and every framework: `envs/<name>.yaml` and its `.post-deploy.sh`.

`python -m throughline.installation.conda_files` writes them (`make lock`). A test fails if one of them is out of date.
Snakemake uses them with `--sdm conda`. Standard library only.
"""

from pathlib import Path

from throughline import frameworks
from throughline.files import write_text
from throughline.installation.choose import environment
from throughline.installation.recipe import PINS, lines

NAMES = ("main", *frameworks.NAMES)
POST_DEPLOY = """\
#!/usr/bin/env bash
# Run by Snakemake in the new conda environment, in the project's root: the same builder as without conda.
set -euo pipefail
PYTHONPATH=src python workflow/scripts/environment.py {name} --here
"""


def files(name: str) -> dict[Path, str]:
    """Return the files of conda for a framework or for `main`: each path and its text."""
    recipe, path = environment(name), PINS / f"{name}.yaml"
    if recipe is None:
        packages = ["python=3.11", "pip", *["c-compiler"] * (name == "main"), f"pip:\n      - -r {name}.txt"]
        title = [f"The pins of {name}.txt as a conda environment, for snakemake --sdm conda."]
        return {path: _yaml(title, packages)}
    script = path.with_suffix(".post-deploy.sh")
    installs = f"{script.name} installs the pins of {recipe.framework}.txt into it."
    title = [f"An environment for snakemake --sdm conda: {installs}", f"pins: {recipe.pins}"]
    uv = next(line for line in lines(PINS / "main.txt") if line.startswith("uv==")).replace("==", "=")
    compilers, mpi = (["cxx-compiler", "make", "patch"], ["openmpi"]) if recipe.source else ([], [])
    packages = [f"python={recipe.python}", "pip", *compilers, uv, *mpi]
    return {path: _yaml(title, packages), script: POST_DEPLOY.format(name=name)}


def _yaml(title: list[str], packages: list[str]) -> str:
    head = [*(f"# {line}" for line in title), "channels: [conda-forge, nodefaults]", "dependencies:"]
    return "\n".join([*head, *(f"  - {package}" for package in packages)]) + "\n"


if __name__ == "__main__":
    for name in NAMES:
        for path, text in files(name).items():
            write_text(path, text)
