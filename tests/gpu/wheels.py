"""Download the packages that the workflow needs and an image for GPUs lacks: `python tests/gpu/wheels.py VERSION`.

VERSION is the image's Python, such as 3.12. The wheels lie in `wheels/<VERSION>/` (`make wheels`), together under
60 MiB, so that they can be carried to a machine without a network. `unpack` makes those importable there that its
Python lacks. The versions are those of this environment, which the lock decides.
"""

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "wheels"
MOST_BYTES = 60 << 20
NEEDED = ("snakemake", "pydantic", "ruamel.yaml", "h5py", "isal", "urllib3", "jinja2", "matplotlib", "pandas",
          "diptest", "rich", "filelock", "psutil", "nvidia-ml-py", "pytest")  # fmt: skip
"""What the workflow imports on synthetic data, and pytest."""
THERE = {"numpy", "scipy", "packaging", "typing-extensions", "setuptools", "pip"}
"""What torch, transformers and jax bring. Their versions decide about these packages."""
TOO_LARGE = {"pulp"}
"""Snakemake's solver (16 MB). Without it, Snakemake chooses the next job greedily."""
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_27", "manylinux_2_28")


def main(version: str) -> None:
    folder = FOLDER / version
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    names = sorted(closure())
    pins = [f"{name}=={metadata.version(name)}" for name in names]
    places = [word for platform in PLATFORMS for word in ("--platform", f"{platform}_x86_64")]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    choice = ["--no-deps", "--only-binary=:all:", "--python-version", version, *places]
    for pin in pins:
        got = subprocess.run([*pip, "download", *choice, "-d", str(folder), pin], capture_output=True, check=False)
        if got.returncode:  # some pure packages have no wheel
            subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), pin], check=True)
    size = sum(wheel.stat().st_size for wheel in folder.iterdir())
    print(f"{len(pins)} wheels for Python {version}, {size / (1 << 20):.1f} MiB: {folder}")
    if size > MOST_BYTES:
        sys.exit(f"they are larger than {MOST_BYTES >> 20} MiB")


def closure() -> set[str]:
    """Return the names of the needed packages and of all that they require, without what an image has."""
    found: set[str] = set()
    waiting = list(NEEDED)
    while waiting:
        name = normal(waiting.pop())
        if name not in found | THERE | TOO_LARGE:
            found.add(name)
            waiting += required(name)
    return found


def required(name: str) -> Iterator[str]:
    """Yield the names that an installed package requires on this system, without extras."""
    from packaging.requirements import Requirement

    for text in metadata.requires(name) or ():
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            yield one.name


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def unpack(folder: Path, target: Path) -> list[str]:
    """Unpack the wheels of packages that this Python lacks into a folder for PYTHONPATH; return their names."""
    there = {normal(one.name) for one in metadata.distributions()}
    lacking = {normal(wheel.name.partition("-")[0]): wheel for wheel in sorted(folder.glob("*.whl"))}
    lacking = {name: wheel for name, wheel in lacking.items() if name not in there}
    for wheel in lacking.values():
        with zipfile.ZipFile(wheel) as content:
            content.extractall(target)
    return list(lacking)


if __name__ == "__main__":
    main(sys.argv[1])
