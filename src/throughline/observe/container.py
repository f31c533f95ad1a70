"""Name the container image that a run is in, from the variables and files that its engine leaves in the container.

Apptainer, Podman, and Slurm's plugin pyxis tell the image. Docker tells only that there is a container: who starts it
sets THROUGHLINE_IMAGE. NVIDIA's images tell their own name. Standard library only.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

STATED = "THROUGHLINE_IMAGE"
PYXIS = re.compile(r"(SLURM_SPANK_)?_SLURM_SPANK_OPTION_pyxis_container_(image|name)")
"""The variables in which Slurm hands the options of pyxis on."""
SOURCE = "org.label-schema.usage.singularity.deffile.from"
"""The label of Apptainer for the image that an image was built from."""


def image(variables: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """Return the engine and the image, such as `apptainer: pytorch.sif`; None outside of a container."""
    engine = _engine(variables, root)
    if engine is None:
        return None
    name, told = engine
    named = variables.get(STATED) or told or _nvidia(variables)
    return f"{name}: {named or f'its image is not told ({STATED} can tell)'}"


def _engine(variables: Mapping[str, str], root: Path) -> tuple[str, str | None] | None:
    """Return the engine of this container, and the image if the engine tells it."""
    file = variables.get("APPTAINER_CONTAINER") or variables.get("SINGULARITY_CONTAINER") or ""
    if file or (root / ".singularity.d").is_dir():
        return "apptainer", _apptainer(file, root)
    pyxis = sorted((name, value) for name, value in variables.items() if PYXIS.fullmatch(name) and value)
    if pyxis:
        return "pyxis", _short(pyxis[0][1])
    podman = root / "run/.containerenv"
    if podman.exists():
        found = re.search(r'^image="(.+)"$', _text(podman), re.MULTILINE)
        return "podman", found and found[1]
    if (root / ".dockerenv").exists():
        return "docker", None
    return ("container", variables[STATED]) if variables.get(STATED) else None


def _apptainer(file: str, root: Path) -> str | None:
    """Return the name of the image's file, with the image that it was built from if its labels say so."""
    try:
        source = str(json.loads(_text(root / ".singularity.d/labels.json")).get(SOURCE) or "")
    except (ValueError, AttributeError):
        source = ""
    return ", from ".join(part for part in (_short(file), source) if part) or None


def _nvidia(variables: Mapping[str, str]) -> str | None:
    """Return what an image of NVIDIA says of itself, such as `NVIDIA PyTorch 20.06, build 13419386`."""
    product = variables.get("NVIDIA_PRODUCT_NAME")
    version = variables.get(f"NVIDIA_{(product or '').upper()}_VERSION")
    build = variables.get("NVIDIA_BUILD_ID", "").strip()
    if not (product and version):
        return None
    return f"NVIDIA {product} {version}" + (f", build {build}" if build else "")


def _short(image: str) -> str:
    """Return an image without the folder of its file. An image of a registry has no leading slash, and stays whole."""
    return Path(image).name if image.startswith(("/", "./", "~")) else image


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
