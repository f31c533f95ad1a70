"""The workflow for GitHub that docs/how-to/regressions.md shows runs commands that exist."""

from __future__ import annotations

import re
import shlex
from importlib import import_module

from markdown_it import MarkdownIt
from ruamel.yaml import YAML

from clones import ROOT
from throughline.command import parser
from throughline.commands import NAMES


def test_the_workflow_that_watches_for_regressions_has_commands_that_exist() -> None:
    page = (ROOT / "docs/how-to/regressions.md").read_text(encoding="utf-8")
    (text,) = [block.content for block in MarkdownIt().parse(page) if block.info == "yml"]
    workflow = YAML(typ="safe").load(text)
    assert workflow["on"] == {"push": {"branches": ["main"]}}
    (job,) = workflow["jobs"].values()
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    made = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    rules = {name for path in ROOT.glob("rules/*.smk") for name in re.findall(r"^rule (\w+):", path.read_text(), re.M)}
    programs = []
    for step in job["steps"]:
        program, *words = shlex.split(step.get("run", ""), comments=True) or [""]
        programs.append(program.removeprefix(".venv/bin/"))
        if program == "make":
            assert words[0] in made
        elif program.endswith("snakemake"):
            assert words[0] in rules and words[1:] == ["--configfile", "mine.yaml"]
        elif program:
            assert words[0] in NAMES
            module = import_module(f"throughline.commands.{words[0]}")
            assert parser(module.main).parse_args(words[1:]).by == "2%"
    assert [name for name in programs if name] == ["make", "snakemake", "throughline", "snakemake"]
