"""The files of conda for the workflow (`main`) and every framework: `envs/<name>.yaml` and its `.post-deploy.sh`.

`python -m throughline.installation.conda_files` writes them (`make lock`). A test fails if one of them is out of date.
Snakemake uses them with `--sdm conda`. Standard library only.
"""

import re
from pathlib import Path

from throughline import frameworks, recipes
from throughline.files import write_text

PYTHON = "3.11"
"""The Python of a framework that runs in the workflow's own environment."""
COMPILERS = ("cxx-compiler", "make", "patch")
NAMES = ("main", *frameworks.NAMES)

POST_DEPLOY = """\
#!/usr/bin/env bash
# Run by Snakemake in the new conda environment, in the project's root: the same builder as without conda.
set -euo pipefail
PYTHONPATH=src python workflow/scripts/environment.py {name} --here
"""


def files(name: str) -> dict[Path, str]:
    """Return the files of conda for a framework or for `main`: each path and its text."""
    recipe, path = recipes.of(name), recipes.PINS / f"{name}.yaml"
    if recipe is None:
        title = f"# The pins of {name}.txt as a conda environment, for snakemake --sdm conda."
        compiler = ["c-compiler"] if name == "main" else []  # for corpus/kernel.c
        return {path: _environment([title], [f"python={PYTHON}", "pip", *compiler, f"pip:\n      - -r {name}.txt"])}
    script = path.with_suffix(".post-deploy.sh")
    pins = f"the pins of {recipe.framework}.txt"
    title = f"# An environment for snakemake --sdm conda: {script.name} installs {pins} into it."
    compilers = COMPILERS if recipe.compiled else ()
    packages = [f"python={recipe.python}", "pip", *compilers, f"uv={_uv()}", *recipe.conda]
    return {path: _environment([title, f"# pins: {recipe.pins}"], packages), script: POST_DEPLOY.format(name=name)}


def _environment(title: list[str], packages: list[str]) -> str:
    listed = [f"  - {package}" for package in packages]
    return "\n".join([*title, "channels: [conda-forge, nodefaults]", "dependencies:", *listed]) + "\n"


def _uv() -> str:
    """Return the pinned version of uv, which the builder uses."""
    pinned = re.search(r"^uv==(\S+)", (recipes.PINS / "main.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned, "main.txt does not pin uv"
    return pinned[1]


if __name__ == "__main__":
    for name in NAMES:
        for path, text in files(name).items():
            write_text(path, text)
