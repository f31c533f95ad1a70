"""`options.image_decoder: dali` shows the same crops as Pillow's decoder, and an error says if DALI is missing."""

from __future__ import annotations

import io
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from images_helpers import folder, made
from throughline import images
from throughline.rank.data import Manifest, batches
from throughline.rank.run import Run
from throughline.workloads import Unsupported


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that get brighter to the right and redder to the bottom, so every crop and mirroring looks different."""
    path, files = tmp_path_factory.mktemp("images"), {}
    for label in range(6):
        across, down = np.meshgrid(np.linspace(0, 255, 90 + label), np.linspace(0, 255, 70))
        stream = io.BytesIO()
        Image.fromarray(np.stack([down, across, across], 2).astype(np.uint8)).save(stream, "JPEG", quality=95)
        files[f"train/{label}/a.jpg"] = stream.getvalue()
        files[f"val/{label}/a.jpg"] = stream.getvalue()
    return made(folder(path / "source", files), path / "made")


def opened(manifest: Path) -> Any:
    return Manifest(manifest, "images", SimpleNamespace(image=32), 1)


def test_dali_shows_pillows_crops(manifest: Path) -> None:
    pytest.importorskip("nvidia.dali")
    read = opened(manifest)
    pairs = zip(
        read.decoded(batches(read, 1, 0, 1, 4), 4),
        read.reader.by_dali(batches(read, 1, 0, 1, 4), 4, threads=2, gpu=None),
        strict=False,
    )
    for by_pillow, by_dali in islice(pairs, 6):
        assert by_dali["pixels"].shape == (4, 32, 32, 3) and by_dali["pixels"].dtype == np.uint8
        assert by_dali["labels"].dtype == np.int32 and (by_dali["labels"] == by_pillow["labels"]).all()
        difference = np.abs(by_dali["pixels"].astype(int) - by_pillow["pixels"])
        assert difference.mean() < 2


def test_dali_ends_with_its_rows_and_cuts_the_middle_of_held_out_pictures(manifest: Path) -> None:
    pytest.importorskip("nvidia.dali")
    read = opened(manifest)
    (shard,) = (number for number, one in enumerate(read.content["shards"]) if one["split"] == "test")
    rows = [{"rows": np.array([[shard, row, -1] for row in some])} for some in ((0, 1, 2), (3,))]
    found = list(read.reader.by_dali(iter(rows), 3, threads=1, gpu=None))
    expected = list(read.decoded(iter(rows), 3))
    assert [len(one["pixels"]) for one in found] == [3, 1]
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one["pixels"].astype(int) - other["pixels"]).mean() < 2


def test_pixels_that_stay_where_they_were_decoded_are_the_same(manifest: Path) -> None:
    """Only their owner differs: on a GPU they do not pass through the host."""
    pytest.importorskip("nvidia.dali")
    torch = pytest.importorskip("torch")
    read = opened(manifest)
    copied, left = (
        read.reader.by_dali(batches(read, 1, 0, 1, 4), 4, threads=2, gpu=None, stays=stays) for stays in (False, True)
    )
    for arrays, tensors in islice(zip(copied, left, strict=False), 4):
        assert not isinstance(tensors["pixels"], np.ndarray)
        assert np.array_equal(torch.from_dlpack(tensors["pixels"]).numpy(), arrays["pixels"])
        assert np.array_equal(tensors["labels"], arrays["labels"])


@pytest.mark.parametrize(("kind", "takes", "asked"), [("cuda", True, (1, True)), ("cuda", False, (1, False)),
                                                      ("cpu", True, (None, False))])  # fmt: skip
def test_pixels_stay_on_the_gpu_for_frameworks_that_take_them(
    manifest: Path, monkeypatch: pytest.MonkeyPatch, kind: str, takes: bool, asked: tuple[int | None, bool]
) -> None:
    given: list[Any] = []
    run: Any = SimpleNamespace(
        manifest=opened(manifest), size=SimpleNamespace(batch_per_replica=4), order=SimpleNamespace(kind=kind),
        options=SimpleNamespace(image_decoder="dali"), spec=SimpleNamespace(decoders=2),
        framework=SimpleNamespace(local_rank=1, takes_from_gpu=takes),
    )  # fmt: skip
    monkeypatch.setattr(type(run.manifest.reader), "by_dali", lambda self, *words: given.append(words[-2:]))
    Run.decoded(run, iter(()))
    assert given == [asked]


def test_an_environment_without_dali_says_so(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia", None)
    monkeypatch.delitem(sys.modules, "throughline.images.dali", raising=False)
    monkeypatch.delattr(images, "dali", raising=False)
    with pytest.raises(Unsupported, match=r"options\.image_decoder is dali, and this framework's environment lacks it"):
        opened(manifest).reader.by_dali(iter(()), 4, 1, None)
