"""Build the environments of some frameworks, or of all, if they do not exist yet.

With `--here`, install into the environment of the running Python instead. Several environments are built side by side:
while one downloads, unpacks or configures, another compiles.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from throughline import frameworks, recipes
from throughline.files import command_line
from throughline.launch import installation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "framework", nargs="*", help="names in config.yaml (default: all that have their own environment)"
    )
    parser.add_argument("--here", action="store_true", help="install into the environment of this Python (conda's)")
    parser.add_argument("--log", type=Path, help="the whole output (default: logs/environments/<framework>.log)")
    arguments = parser.parse_args()
    if arguments.log and len(arguments.framework) != 1:
        parser.error("--log needs the name of one framework")
    every = (recipes.of(name) for name in frameworks.NAMES if recipes.ready(name))
    names = arguments.framework or list(dict.fromkeys(one.framework for one in every if one))
    logs = [arguments.log or Path("logs", "environments", f"{name}.log") for name in names]
    if arguments.here:
        for name, log in zip(names, logs, strict=True):
            installation.fill(name, log)
        return
    with ThreadPoolExecutor(len(names)) as builders:
        builds = [builders.submit(installation.build, name, log) for name, log in zip(names, logs, strict=True)]
    for build in builds:  # an error is raised only now, when all builds have ended
        build.result()


if __name__ == "__main__":
    command_line(main)
