"""How training reads images: the same pixels with any number of processes, limited memory, no process left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from images_helpers import folder, made, picture
from throughline import processes
from throughline.files import UserError
from throughline.images import pictures
from throughline.randomness import Stream
from throughline.rank import data
from throughline.rank.data import AHEAD, AHEAD_BYTES, Loader, Manifest, batches

SIZE = 16


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of twelve classes: training_0000, training_0001 and test_0000."""
    path = tmp_path_factory.mktemp("images")
    files = {f"train/{label:02d}/a.jpg": shaded(label) for label in range(12)}
    held = {f"val/{label:02d}/a.jpg": shaded(label) for label in range(3)}
    return made(folder(path / "source", files | held), path / "made")


def shaded(label: int) -> bytes:
    """Return a picture whose red is its label, and whose green and blue give the position of a pixel."""
    down, across = np.mgrid[0:30, 0:40]
    pixels = np.stack([np.full_like(down, 20 * label), across * 6, down * 8], axis=-1).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95, subsampling=0)
    return stream.getvalue()


def opened(manifest: Path, image: int = SIZE, seed: int = 1) -> Manifest:
    return Manifest(manifest, "images", SimpleNamespace(image=image), seed)


def taken(
    manifest: Path, count: int, size: int = 4, workers: int = 1, replica: int = 0, replicas: int = 1
) -> list[Any]:
    read = opened(manifest)
    source = read.decoded(batches(read, 1, replica, replicas, size), size, workers)
    arrays = list(islice(source, count))
    source.close()  # type: ignore[attr-defined]
    return arrays


def test_every_picture_once_an_epoch_and_the_same_pixels_for_any_number_of_processes(manifest: Path) -> None:
    one, three = taken(manifest, 6, workers=1), taken(manifest, 6, workers=3)
    for a, b in zip(one, three, strict=True):
        assert a["pixels"].shape == (4, SIZE, SIZE, 3) and a["pixels"].dtype == np.uint8
        assert a["labels"].dtype == np.int32
        assert all(np.array_equal(a[name], b[name]) for name in a)
        for shown, label in zip(a["pixels"], a["labels"], strict=True):
            assert abs(shown[..., 0].astype(int) - 20 * label).max() < 12, "pixels of their class"
    epochs = [np.concatenate([batch["labels"] for batch in one[first : first + 3]]) for first in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(12)) and not np.array_equal(*epochs)


def test_replicas_read_pictures_of_their_own(manifest: Path) -> None:
    labels = [
        {int(one) for batch in taken(manifest, 3, 2, 2, replica, 2) for one in batch["labels"]} for replica in (0, 1)
    ]
    assert len(labels[0]) == len(labels[1]) == 6 and not labels[0] & labels[1]


def test_held_out_pictures_come_whole_and_always_the_same(manifest: Path) -> None:
    read = opened(manifest)
    rows = [read.reader.read(shard, epoch) for shard in read.held_out for epoch in (0, 5)]
    first, second = read.decoded(iter(rows), 4)
    assert sorted(first["labels"]) == [0, 1, 2] and len(first["pixels"]) == 3, "a last batch has what is left"
    assert np.array_equal(first["pixels"], second["pixels"])
    for shown, label in zip(first["pixels"], first["labels"].tolist(), strict=True):
        expected = pictures.resized(pictures.opened(shaded(label)), pictures.center_crop(40, 30), SIZE)
        assert np.array_equal(shown, expected)


def test_a_crop_is_drawn_anew_in_every_epoch_and_for_every_picture_and_seed() -> None:
    def box(*names: int) -> Any:
        return pictures.random_crop(Stream(*names), 500, 375)

    assert box(1, 0) == box(1, 0) and len({box(seed, epoch) for seed in range(4) for epoch in range(4)}) == 16
    boxes = [box(3, number) for number in range(2000)]
    areas = np.array([wide * high / (500 * 375) for (_, _, wide, high), _ in boxes])
    shapes = np.array([wide / high for (_, _, wide, high), _ in boxes])
    assert areas.min() > 0.07 and areas.max() <= 1 and shapes.min() > 0.74 and shapes.max() < 1.35
    assert 0.45 < np.mean([mirrored for _, mirrored in boxes]) < 0.55
    assert all(left >= 0 and top >= 0 and left + w <= 500 and top + h <= 375 for (left, top, w, h), _ in boxes)


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (3, 2)])
def test_small_and_long_pictures_have_a_crop_too(size: tuple[int, int]) -> None:
    for number in range(20):
        (left, top, wide, high), _ = pictures.random_crop(Stream("long", number), *size)
        assert wide > 0 and high > 0 and left + wide <= size[0] and top + high <= size[1]
        read = pictures.opened(picture(size=size))
        assert pictures.resized(read, (left, top, wide, high), 8).shape == (8, 8, 3)


@pytest.mark.parametrize(
    "how", [{"mode": "L"}, {"mode": "CMYK"}, {"kind": "PNG", "mode": "P"}, {"kind": "PNG", "mode": "RGBA"}]
)
def test_every_kind_of_picture_becomes_red_green_and_blue(how: Any) -> None:
    shown = pictures.resized(pictures.opened(picture(3, (64, 64), **how)), (0, 0, 64, 64), 32)
    wanted = picture(3, (64, 64), kind="PNG", mode="L" if how["mode"] == "L" else "RGB")
    right = np.asarray(pictures.opened(wanted).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR))
    assert abs(shown.astype(int) - right).mean() < (12 if how["mode"] == "P" else 4)


def test_a_picture_decoded_at_a_half_looks_the_same() -> None:
    """For a picture four times as wide as needed, libjpeg decodes only a part of the frequencies."""
    file = picture(5, (256, 192))
    whole = pictures.opened(file, decode=True).resize((32, 32), Image.Resampling.BILINEAR, box=(32, 16, 224, 176))
    read = pictures.opened(file)
    shown = pictures.resized(read, (32, 16, 192, 160), 32)
    assert read.size == (64, 48), "at a quarter"
    assert abs(shown.astype(int) - np.asarray(whole)).mean() < 2


def test_batches_ahead_fit_into_the_bound(manifest: Path) -> None:
    assert opened(manifest, 64).ahead(8) == AHEAD - 2
    large = opened(manifest, 224)
    assert (large.ahead(256) + 2) * 256 * (3 * 224**2 + 4) <= AHEAD_BYTES and large.ahead(256) == 4
    assert large.ahead(4096) == 1


def test_the_rank_reads_through_its_loader_and_ends_with_its_processes(manifest: Path) -> None:
    read = opened(manifest)
    loader = Loader(read.decoded(batches(read, 1, 0, 1, 4), 4, 2), dict, read.ahead(4))
    assert all(np.array_equal(loader.next()["pixels"], batch["pixels"]) for batch in taken(manifest, 4))
    assert "decoded by Pillow" in str(read.reader.how) and "in 2 processes" in str(read.reader.how)
    assert decoders(os.getpid())
    loader.close()
    del loader
    assert processes.wait_until(lambda: not decoders(os.getpid()), 10)


def decoders(ancestor: int) -> list[int]:
    return [pid for pid in processes.descendants(ancestor) if b"images.decoding" in processes.command_line(pid)]


READS = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from throughline.rank.data import Manifest, batches
read = Manifest(Path(sys.argv[1]), "images", SimpleNamespace(image=16), 1)
source = read.decoded(batches(read, 1, 0, 1, 4), 4, 2)
next(source)
assert not {"torch", "PIL"} & set(sys.modules), "a rank has no Pillow"
print("ready", flush=True)
time.sleep(600)
"""


def test_processes_do_not_outlive_a_killed_rank(manifest: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", READS, str(manifest)], stdout=subprocess.PIPE) as rank:
        assert rank.stdout and rank.stdout.readline() == b"ready\n"
        workers = decoders(rank.pid)
        assert len(workers) == 2
        loaded = [Path(f"/proc/{pid}/maps").read_text() for pid in workers]
        assert not any("libtorch" in text for text in loaded)
        rank.send_signal(signal.SIGKILL)
        rank.wait()
    assert processes.wait_until(lambda: not any(processes.command_line(pid) for pid in workers), 10)


def test_a_process_that_dies_ends_the_rank_with_its_status(manifest: Path) -> None:
    read = opened(manifest)
    source: Iterator[Any] = read.decoded(batches(read, 1, 0, 1, 4), 4, 1)
    next(source)
    for pid in decoders(os.getpid()):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="a process that decodes pictures ended with status -9"):
        list(islice(source, 4))


def test_a_picture_that_cannot_be_decoded_is_named(manifest: Path, tmp_path: Path) -> None:
    place = made(folder(tmp_path / "source", {f"{n}/a.jpg": shaded(n) for n in range(2)}), tmp_path / "made", 1, 0)
    shard = tmp_path / "made/training_0000.tar"
    harmed = bytearray(shard.read_bytes())
    harmed[512:612] = bytes(100)
    shard.write_bytes(harmed)
    read = opened(place)
    with pytest.raises(RuntimeError, match=r"picture 0 of training_0000\.tar: Damaged: it is neither JPEG nor PNG"):
        next(read.decoded(batches(read, 1, 0, 1, 2), 2))


@pytest.mark.parametrize(
    ("name", "what"), [("training_0001.tar", "was changed"), ("training_0001.idx", "in its index")]
)
def test_shards_and_their_indexes_are_checked_before_a_run(
    manifest: Path, tmp_path: Path, name: str, what: str
) -> None:
    for path in manifest.parent.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    read = opened(tmp_path / "manifest.json")
    read.check(read.shards)
    with (tmp_path / name).open("ab") as stream:
        stream.write(b"\n")
    with pytest.raises(UserError, match=what):
        read.check(read.shards)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match="is missing"):
        read.check(read.shards)


def test_shards_that_are_used_are_those_that_are_read(manifest: Path) -> None:
    read, seen = opened(manifest), set[str]()
    content = json.loads(manifest.read_text())
    reader, files = read.reader, [shard["file"] for shard in content["shards"]]
    original = reader.read
    reader.read = lambda shard, epoch: seen.add(shard["file"]) or original(shard, epoch)  # type: ignore
    list(islice(read.decoded(data.batches(read, 1, 0, 1, 1), 1), 1))
    assert seen <= {shard["file"] for shard in read.used(1, 1, 1, 1)} <= set(files)
