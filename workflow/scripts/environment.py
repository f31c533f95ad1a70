"""Build the environments of some frameworks, or of all, if they do not exist yet.

With `--here`, install into the environment of the running Python instead. Several environments are built side by side:
while one downloads, unpacks or configures, another compiles.

frameworks: names in config.yaml (default: all that have their own environment)
here: install into the environment of this Python (conda's)
log: the whole output (default: logs/environments/<framework>.log)
"""

from collections.abc import Sequence
from pathlib import Path

from throughline.command import run
from throughline.files import UserError


def main(frameworks: Sequence[str] = (), /, here: bool = False, log: Path | None = None) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from throughline import handover
    from throughline.frameworks import NAMES
    from throughline.installation import build, choose, recipe

    if log and len(frameworks) != 1:
        raise UserError("--log needs the name of one framework")
    names = frameworks or list(dict.fromkeys(recipe.read(name).framework for name in NAMES if choose.ready(name)))
    logs = [log or Path("logs", "environments", f"{name}.log") for name in names]
    if here:
        for name, output in zip(names, logs, strict=True):
            build.fill(name, output)
        return
    with ThreadPoolExecutor(len(names)) as builders:
        builds = [builders.submit(build.build, name, output) for name, output in zip(names, logs, strict=True)]
    for finished in builds:  # an error is raised only now, when all builds have ended
        finished.result()
    if handover.get("devices"):  # runs on GPUs wait for them
        from throughline.launch import gpu_builds

        for name in names:
            gpu_builds.check_built(name)


if __name__ == "__main__":
    run(main)
