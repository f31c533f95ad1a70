"""Build the lane's environment and its fake driver: `python tests/gpu/environment.py` prints the lane's variables.

The environment has PyTorch's CUDA build with the pins of the framework `torch`, and transformers for the layers. It
lies beside those of the frameworks, and its name is a digest of what is in it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "src"), str(HERE.parent), str(HERE)]

from double import build  # noqa: E402

import nvml_double  # noqa: E402
from throughline.files import UserError  # noqa: E402
from throughline.installation import recipe, uv  # noqa: E402

BUILD = "import torch; print(torch.version.cuda or 'none')"


def main() -> None:
    python = os.environ.get("GPU_DRY_PYTHON") or str(environment())
    print(f"export GPU_DRY_PYTHON={python}")
    print(f"export GPU_DRY_DOUBLE={os.environ.get('GPU_DRY_DOUBLE') or double(Path(python))}")


def pins() -> list[str]:
    """Return what the environment has: torch in the build of the index itself, which is CUDA's, and no `+cpu`."""
    transformers = [line for line in recipe.read("hf-loop").pinned if line.startswith("transformers==")]
    return [line.replace("torch==", "torch===") for line in recipe.read("torch").pinned] + transformers


def environment() -> Path:
    """Return the interpreter of the environment, which is built if it does not exist."""
    digest = hashlib.sha256(json.dumps([sys.version_info[:2], pins()]).encode()).hexdigest()[:12]
    folder = recipe.environments() / f"gpu-dry-{digest}"
    python = folder / "bin/python"
    if (folder / recipe.READY).exists():
        return python
    print(f"environment of the lane: {folder}; it downloads 2.7 GB", file=sys.stderr)
    variables = uv.variables(folder)
    variables.pop("UV_FIND_LINKS", None)  # folders of wheels hold CPU builds
    try:
        subprocess.run(
            uv.command("venv", "--clear", "--python", sys.executable, str(folder)), env=variables, check=True
        )
        install = uv.command("pip", "install", "--python", str(python))
        subprocess.run([*install, *pins()], env=variables, check=True)
        done = subprocess.run([str(python), "-c", BUILD], capture_output=True, text=True, check=True)
        if done.stdout.strip() == "none":
            raise UserError(
                "the index gave a build of PyTorch without CUDA", next_step="unset UV_INDEX and PIP_EXTRA_INDEX_URL"
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / recipe.READY).touch()
    return python


def double(python: Path) -> Path:
    """Return the folder of the fake driver, which is compiled if its source has changed. The fake NVML is beside it:
    without one, PyTorch ends in a crash as soon as it maps an expandable segment."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    headers = build.headers(Path(site))
    if headers is None:
        raise UserError(f"{python} has no headers of CUDA", next_step="install Triton there: the CUDA build needs it")
    return nvml_double.build(build.library(headers, recipe.environments().parent / "gpu-double").parent)


if __name__ == "__main__":
    main()
