"""The image that a run is in, from what each engine leaves in its containers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from throughline.observe import container

FILES = {
    "apptainer": (".singularity.d/labels.json", json.dumps({container.SOURCE: "nvcr.io/nvidia/pytorch:20.06-py3"})),
    "apptainer without labels": (".singularity.d/labels.json", "[]"),
    "podman": ("run/.containerenv", 'engine="podman-5.4.0"\nimage="docker.io/library/debian:12"\n'),
    "empty podman": ("run/.containerenv", ""),
    "docker": (".dockerenv", ""),
}
NVIDIA = {"NVIDIA_PRODUCT_NAME": "PyTorch", "NVIDIA_PYTORCH_VERSION": "20.06", "NVIDIA_BUILD_ID": "13419386 "}
PYXIS = "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image"


@pytest.mark.parametrize(
    ("files", "variables", "said"),
    [
        ("", {}, None),
        ("", {"APPTAINER_CONTAINER": "/data/images/torch.sif"}, "apptainer: torch.sif"),
        ("apptainer", {"SINGULARITY_CONTAINER": "/data/torch.sif"},
         "apptainer: torch.sif, from nvcr.io/nvidia/pytorch:20.06-py3"),
        ("apptainer without labels", {}, "apptainer: its image is not told (THROUGHLINE_IMAGE can tell)"),
        ("docker", {PYXIS: "nvcr.io#nvidia/pytorch:20.06-py3"}, "pyxis: nvcr.io#nvidia/pytorch:20.06-py3"),
        ("", {PYXIS: "/data/torch.sqsh"}, "pyxis: torch.sqsh"),
        ("podman", {}, "podman: docker.io/library/debian:12"),
        ("empty podman", {}, "podman: its image is not told (THROUGHLINE_IMAGE can tell)"),
        ("docker", NVIDIA, "docker: NVIDIA PyTorch 20.06, build 13419386"),
        ("docker", NVIDIA | {"THROUGHLINE_IMAGE": "mine:3"}, "docker: mine:3"),
        ("", {"THROUGHLINE_IMAGE": "mine:3"}, "container: mine:3"),
    ],
)  # fmt: skip
def test_each_engine_tells_its_image(files: str, variables: dict[str, str], said: str | None, tmp_path: Path) -> None:
    if files:
        name, text = FILES[files]
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container.image(variables, tmp_path) == said
