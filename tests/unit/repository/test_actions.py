"""Continuous integration runs commands that people run as well."""

from __future__ import annotations

import re

from ruamel.yaml import YAML

from clones import ROOT


def test_the_actions_run_commands_of_the_repository() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in (ROOT / ".github/workflows").glob("*.yaml"):
        jobs = YAML(typ="safe").load(path)["jobs"].values()
        commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        assert commands
        for command in commands:
            program, *words = command.split()
            assert (ROOT / program).is_file() if not words else program == "make" and words[0] in targets, command
