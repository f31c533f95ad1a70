"""Build the environment of a framework, or of all of them, if it is not there yet; `--here` fills the one that runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline import frameworks, recipes
from throughline.files import command_line
from throughline.launch import installation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", nargs="?", help="its name in config.yaml (default: all with one of their own)")
    parser.add_argument("--here", action="store_true", help="install into the environment of this Python (conda's)")
    parser.add_argument("--log", type=Path, help="the whole output (default: logs/environments/<framework>.log)")
    arguments = parser.parse_args()
    names = [arguments.framework] if arguments.framework else [n for n in frameworks.TABLE if recipes.ready(n)]
    for name in names:
        log = arguments.log or Path("logs", "environments", f"{name}.log")
        if arguments.here:
            installation.fill(name, log)
        else:
            installation.build(name, log)


if __name__ == "__main__":
    command_line(main)
